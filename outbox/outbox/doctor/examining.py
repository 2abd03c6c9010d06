"""Goes through the checks: each in short statements with a time limit of their own, the large tables page by page.

A statement sees one moment, and every transition is one transaction: so what moves meanwhile looks sound in each of
them. What can't be looked at, for want of a right or of time, is named and hides nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox.database.ids import made_at
from outbox.database.statements import Statements, statements_for
from outbox.database.trouble import reason_of
from outbox.doctor.checks import CHECKS, Check, Walk
from outbox.doctor.report import Disorder, Limits, Report, Sample
from outbox.leases.presence import LIVE_S
from outbox.migrations import check_schema
from outbox.schedules.rules import parse_rule
from outbox.settings.identifiers import default_schema
from outbox.submitting.submission import HELD
from outbox_schemas import ScheduleRefused

__all__ = ["Examination", "examine"]

_STATEMENT_S = 30
_BATCH = 1000
_LOWEST, _BEYOND = UUID(int=0), UUID(int=(1 << 128) - 1)
# Codes that mean: this one statement can't be run or took too long; the others may do well.
_SPOILED = frozenset({"57014", "55P03", "42501", "42P01", "42703", "42883"})
_GUARDS = ("trigger", "function")


def examine(engine: sa.Engine, *, schema: str | None = None, limits: Limits | None = None) -> Report:
    """Look for every kind of disorder and return what was found. Changes nothing and waits for no lock.

    Args:
        engine: the database, as a role that may read all tables.
        schema: the installation's schema; default: `OUTBOX_SCHEMA`, else "outbox".
        limits: from when on something counts, and how long it may take.
    """
    return Examination(engine, schema or default_schema(), limits or Limits()).run()


class Examination:
    """One examination. `only` leaves out all other checks."""

    def __init__(
        self, engine: sa.Engine, schema: str, limits: Limits, only: Callable[[Check], bool] = lambda _: True
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._statements: Statements = statements_for(schema)
        self._limits = limits
        self._until = time.monotonic() + limits.within_s
        self._checks = [check for check in CHECKS if only(check)]
        self._found = {check.code: Disorder(check) for check in self._checks}
        self._unfinished: dict[str, str] = {}

    def run(self) -> Report:
        """Go through the checks."""
        at, skew_s = self._clocks()
        for walk in Walk:
            self._walk(walk, [check for check in self._checks if check.walk is walk])
        for check in self._checks:
            if check.code in _ASKED:
                self._ask(
                    check,
                    grace_s=self._limits.overdue_s,
                    live_s=LIVE_S,
                    old_s=self._limits.old_s,
                    paused_s=self._limits.paused_s,
                )
        self._skew(skew_s)
        self._schedules()
        self._compare()
        disorders = [found for found in self._found.values() if found.count]
        clean = [code for code, found in self._found.items() if not found.count and code not in self._unfinished]
        return Report(self._schema, at, disorders, clean, self._unfinished)

    def _walk(self, walk: Walk, checks: list[Check]) -> None:
        below = _BEYOND
        while checks and below > _LOWEST:
            if time.monotonic() >= self._until:
                reason = f"the time was over: {walk} from before {_made_at(below)} were not looked at"
                self._unfinished |= {check.code: reason for check in checks}
                return
            low = self._low(walk, below, checks)
            if low is None:
                return
            for check in checks:
                grace_s = self._limits.hint_overdue_s if check.code == "hint_overdue" else self._limits.overdue_s
                self._ask(check, low=low, below=below, grace_s=grace_s, held_at=HELD)
            checks = [check for check in checks if check.code not in self._unfinished]
            below = low

    def _low(self, walk: Walk, below: UUID, checks: list[Check]) -> UUID | None:
        try:
            rows = self._run(f"page_of_{walk}", {"below": below, "page": self._limits.page})
        except sa.exc.DBAPIError as error:
            self._unfinished |= {check.code: _spoiled(error) for check in checks}
            return None
        return rows[0].low if rows else _LOWEST

    def _ask(self, check: Check, **parameters: Any) -> None:
        try:
            rows = self._run(f"doctor_{check.code}", parameters | {"batch": _BATCH})
        except sa.exc.DBAPIError as error:
            self._unfinished[check.code] = _spoiled(error)
            return
        self._note(check.code, (Sample(row.subject, row.detail) for row in rows), more=len(rows) == _BATCH)

    def _note(self, code: str, cases: Iterator[Sample], *, more: bool = False) -> None:
        found = self._found[code]
        for case in cases:
            found.count += 1
            if len(found.cases) < self._limits.cases:
                found.cases.append(case)
        found.more = found.more or more

    def _run(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        needed = set(self._statements.for_sqlalchemy(name).compile().params)
        with self._engine.connect() as connection:
            self._statements.run_within(connection, "limit_statements", {"milliseconds": _STATEMENT_S * 1000})
            return self._statements.run_within(connection, name, {key: parameters[key] for key in needed})

    def _clocks(self) -> tuple[datetime, float]:
        """Return the database's time, and by how many seconds it is ahead of this machine's, as far as that is sure."""
        before = datetime.now(UTC)
        now: datetime = self._run("read_clock", {})[0].now
        after = datetime.now(UTC)
        skew = max(now - after, before - now, timedelta(0))
        return now, skew.total_seconds() if now > after else -skew.total_seconds()

    def _skew(self, skew_s: float) -> None:
        if "clock_skew" in self._found and abs(skew_s) > self._limits.skew_s:
            side = "ahead of" if skew_s > 0 else "behind"
            detail = f"the database's clock is {abs(skew_s):.1f} s {side} this machine's"
            self._note("clock_skew", iter([Sample("clock", detail)]))

    def _schedules(self) -> None:
        """Read every schedule's rule and zone as relays do; what was stored by hand may be no rule at all."""
        code = "schedule_unreadable"
        if code not in self._found:
            return
        try:
            rows = self._run("list_schedules", {"name": None, "source": None})
        except sa.exc.DBAPIError as error:
            self._unfinished[code] = _spoiled(error)
            return
        live = (row for row in rows if row.disabled_at is None and not row.paused)
        self._note(code, (Sample(row.name, told) for row in live if (told := _unreadable(row)) is not None))

    def _compare(self) -> None:
        """Compare the tables with what this release expects, and tell the kinds of difference apart."""
        codes = {"settings_changed", "guard_missing", "schema_differs"} & self._found.keys()
        if not codes:
            return
        try:
            with self._engine.connect() as connection:
                self._statements.run_within(connection, "limit_statements", {"milliseconds": _STATEMENT_S * 1000})
                found = check_schema(connection, self._schema)
        except sa.exc.DBAPIError as error:
            self._unfinished |= dict.fromkeys(codes, _spoiled(error))
            return
        if found.pending or found.too_new:
            self._note("schema_differs", (Sample("revision", line) for line in found.lines()))
        for difference in found.differences:
            kind, _, name = difference.subject.partition(" ")
            code = "guard_missing" if kind in _GUARDS else "schema_differs"
            if kind == "table" and difference.kind == "different":
                code = "settings_changed"
            self._note(code, iter([Sample(f"{kind} {name}", str(difference))]))


_ASKED = frozenset(
    {
        "queue_stuck",
        "queue_held",
        "no_consumer",
        "key_missing",
        "set_overdue",
        "set_member_gone",
        "paused_long",
        "redrive_overdue",
        "schedule_ahead",
        "schedule_broken",
        "schedule_overdue",
        "no_relay",
        "horizon_held",
    }
)


def _unreadable(row: Any) -> str | None:
    try:
        parse_rule(row.rule, row.time_zone, row.starts_at or row.created_at)
    except ScheduleRefused as error:
        return str(error)
    return None


def _spoiled(error: sa.exc.DBAPIError) -> str:
    """Return why a check could not be made; an error that concerns them all is raised again."""
    state = getattr(error.orig, "sqlstate", None)
    if state not in _SPOILED:
        raise error
    return "it took too long" if state == "57014" else reason_of(error)


def _made_at(job_id: UUID) -> str:
    """Return when an id was made, for people."""
    made = made_at(job_id)
    if job_id == _BEYOND or made is None:
        return "now" if job_id == _BEYOND else str(job_id)
    return f"{made:%Y-%m-%d %H:%M:%SZ}"
