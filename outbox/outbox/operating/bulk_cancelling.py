"""Cancelling many jobs by a filter: how many it would be, and then in small transactions that may be cut off anywhere.

What has been cancelled by then stays so, and the same call again goes on with the rest.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa

from outbox.database.ids import new_id
from outbox.database.statements import Statements, statements_for
from outbox.database.targets import Target, connection_of, schema_of
from outbox.operating.cancelling import end_held
from outbox.processes.barriers import Barrier, hit
from outbox.texts.actors import check_actor
from outbox.texts.wording import counted
from outbox_schemas import CancelRefused, JobState, NameRefused
from outbox_schemas.names import check_choice, check_filter, check_instant, nature_of

__all__ = ["CancelFilter", "CancelPreview", "CancelReport", "cancel_many", "preview_cancel"]

_WINDOW = 2000
_BATCH = 100
_SAMPLE = 10
_PASSES = 3
_PAUSE_S = 0.2
_NOWHERE = UUID(int=0)
_OPEN = (JobState.READY, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class CancelFilter:
    """Which of the jobs that have not ended are meant: those that fit everything that is given.

    Attributes:
        kind, queue, tenant: as the jobs were submitted.
        state: ready or running, as a `JobState` or its text.
        created_before: an aware datetime.

    Raises:
        NameRefused: a part is out of bounds, or `state` is one of those that have ended.
    """

    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    state: JobState | Literal["ready", "running"] | None = None
    created_before: datetime | None = None

    def __post_init__(self) -> None:
        check_filter(self.kind, self.queue, self.tenant)
        if self.created_before is not None:
            check_instant("created_before", self.created_before)
        if self.state is not None:
            but = ": a job that has ended is not cancelled"
            object.__setattr__(self, "state", check_choice("state", self.state, _OPEN, but))

    def parameters(self) -> dict[str, Any]:
        """Return what the statements take."""
        leased = None if self.state is None else self.state == JobState.RUNNING
        names = {"kind": self.kind, "queue": self.queue, "tenant": self.tenant}
        return names | {"phase_leased": leased, "created_before": self.created_before}

    def plain(self) -> dict[str, str]:
        """Return what is given, as text."""
        values = {"kind": self.kind, "queue": self.queue, "tenant": self.tenant}
        state = None if self.state is None else JobState(self.state).value
        instant = None if self.created_before is None else self.created_before.isoformat()
        return {name: text for name, text in (values | {"state": state, "created_before": instant}).items() if text}


@dataclass(frozen=True, slots=True)
class CancelPreview:
    """What a filter finds now.

    Attributes:
        where: the filter with an end in time, so that it can't find jobs that are submitted later.
        count: how many jobs fit.
        by_state, by_kind: the same apart.
        sample: the first of them.
    """

    where: CancelFilter
    count: int
    by_state: Mapping[str, int]
    by_kind: Mapping[str, int]
    sample: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class CancelReport:
    """What came of it. `left` counts the jobs that fit and that somebody held all the time: run it again."""

    operation: UUID
    cancelled: int
    left: int


def preview_cancel(target: Target, where: CancelFilter, *, schema: str | None = None) -> CancelPreview:
    """Count the jobs that a filter finds now; nothing is changed or locked. Raises `NameRefused` for no filter."""
    _check_filter(where)
    statements, connection = statements_for(schema_of(target, schema)), connection_of(target)
    if where.created_before is None:
        where = replace(where, created_before=statements.run_within(connection, "read_clock", {})[0].now)
    states: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    sample: list[UUID] = []
    for window in _windows(connection, statements, where):
        states.update(row.state for row in window)
        kinds.update(row.kind for row in window)
        sample += [UUID(str(row.job_id)) for row in window[: _SAMPLE - len(sample)]]
    return CancelPreview(where, states.total(), dict(states), dict(kinds.most_common(50)), tuple(sample))


def cancel_many(
    engine: sa.Engine, where: CancelFilter, *, by: str, reason: str, expect: int, schema: str | None = None
) -> CancelReport:
    """Cancel every job that fits, as `cancel` does each, a hundred at most in a transaction.

    A crash in between leaves whole transactions behind; call it again for the rest. Every job has its own row in the
    audit, which names the operation's id; another row tells of the operation. Jobs that are submitted after the call
    began are not cancelled.

    Args:
        engine: where the transactions are made.
        where: best that of a `preview_cancel`.
        expect: how many jobs are meant at most, as the preview counted them. Fewer may be left by now: jobs end.

    Raises:
        CancelRefused: more jobs fit than were expected; nothing was cancelled.
        NameRefused: `engine`, `where`, `by`, `reason` or `expect` is out of bounds; nothing was asked.
    """
    if not isinstance(engine, sa.Engine):
        told = (
            f"must be a SQLAlchemy Engine, not {type(engine).__name__}: the jobs end in transactions of this call's own"
        )
        raise NameRefused("engine", told)
    _check_filter(where)
    check_actor(by, reason)
    if isinstance(expect, bool) or not isinstance(expect, int) or expect < 0:
        told = f"must be the number of jobs that the preview has counted, not {nature_of(expect)}"
        raise NameRefused("expect", told)
    statements = statements_for(schema_of(None, schema))
    with engine.begin() as connection:
        preview = preview_cancel(connection, where, schema=statements.schema)
        if preview.count > expect:
            fit, meant = counted(preview.count, "job fits", "jobs fit"), counted(expect, "was", "were")
            raise CancelRefused(f"{fit} the filter, {meant} expected; look at a new preview")
        operation = new_id()
        if preview.count:
            detail = json.dumps({"where": preview.where.plain(), "expected": expect, "found": preview.count})
            act = {"actor": by, "action": "jobs.cancel_many", "subject": str(operation), "reason": reason}
            statements.run_within(connection, "write_audit", act | {"detail": detail})
    run = _Run(engine, statements, preview.where, operation, by, reason)
    return run.through(expect) if preview.count else CancelReport(operation, 0, 0)


@dataclass(slots=True)
class _Run:
    """One call's course over all windows and batches."""

    engine: sa.Engine
    statements: Statements
    where: CancelFilter
    operation: UUID
    by: str
    reason: str
    cancelled: int = 0

    def through(self, limit: int) -> CancelReport:
        left = 0
        for number in range(_PASSES):
            if number:
                time.sleep(_PAUSE_S)
            left = self._pass(limit)
            if not left or self.cancelled >= limit:
                break
        return CancelReport(self.operation, self.cancelled, min(left, self._fitting()) if left else 0)

    def _fitting(self) -> int:
        """Count what fits still: of what could not be had, some may have ended by itself."""
        with self.engine.connect() as looking:
            return sum(len(window) for window in _windows(looking, self.statements, self.where))

    def _pass(self, limit: int) -> int:
        """Go over all jobs once, and return how many were found that could not be had."""
        left = 0
        with self.engine.connect() as looking:
            for window in _windows(looking, self.statements, self.where):
                looking.rollback()  # no snapshot is kept meanwhile
                ids = [str(row.job_id) for row in window]
                for start in range(0, len(ids), _BATCH):
                    batch = ids[start : start + min(_BATCH, limit - self.cancelled)]
                    ended = self._end(batch) if batch else 0
                    self.cancelled += ended
                    left += len(batch) - ended
        return left

    def _end(self, ids: Sequence[str]) -> int:
        hit(Barrier.CANCEL_BEFORE_BATCH)
        # Each statement must see what was written before the one that locked.
        with self.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            with connection.begin():
                fitting = self.where.parameters() | {"jobs": json.dumps(ids)}
                rows = self.statements.run_within(connection, "hold_jobs", fitting)
                hit(Barrier.CANCEL_AFTER_HOLD)
                held = {UUID(str(row.job_id)): None for row in rows}
                detail = {"operation": str(self.operation)}
                ended = end_held(connection, self.statements, held, by=self.by, reason=self.reason, detail=detail)
            hit(Barrier.CANCEL_AFTER_COMMIT)
        return len(ended)


def _check_filter(where: object) -> None:
    if not isinstance(where, CancelFilter):
        raise NameRefused("where", f"must be a CancelFilter, not {nature_of(where)}")


def _windows(connection: sa.Connection, statements: Statements, where: CancelFilter) -> Iterator[list[Any]]:
    """Yield the jobs that fit, piece by piece."""
    after = _NOWHERE
    while True:
        parameters = where.parameters() | {"after": after, "window": _WINDOW}
        rows = statements.run_within(connection, "cancellable", parameters)
        if fitting := [row for row in rows if row.fits]:
            yield fitting
        if len(rows) < _WINDOW:
            return
        after = UUID(str(rows[-1].job_id))
