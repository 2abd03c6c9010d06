"""A person's, or a program's, way to change schedules, in the caller's transaction, each audited with who and why."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, refusing_at_once, schema_of, writable
from outbox.schedules.declaring import Declared, Schedule, checked
from outbox.schedules.last_turns import last_turn, turn_told
from outbox.schedules.looking import get_schedule
from outbox.schedules.making import make_now
from outbox.schedules.turns import Turn
from outbox.schedules.views import ScheduleView
from outbox.submitting.submission import Options
from outbox.texts.actors import check_actor
from outbox_schemas import JobRef, ScheduleNotFound, ScheduleRefused, occurrence_key
from outbox_schemas.names import check_name

__all__ = [
    "OPERATOR",
    "Audit",
    "add_schedule",
    "change_schedule",
    "pause_schedule",
    "put",
    "remove_schedule",
    "resume_schedule",
    "run_schedule_now",
    "run_schedule_now_async",
]

OPERATOR = "operator"
"""The source of what a person has added."""


def add_schedule(
    target: Target, schedule: Schedule | Declared, *, by: str, reason: str, schema: str | None = None
) -> ScheduleView:
    """Add a schedule of a person's, audited. Nothing up to this moment is an occurrence of it.

    Raises:
        ScheduleRefused, NameRefused, PayloadError: there is one of this name, or a term can't be.
    """
    check_actor(by, reason)
    terms = schedule if isinstance(schedule, Declared) else checked(schedule)
    connection, statements = _at(target, schema)
    if not put(connection, statements, terms, OPERATOR):
        raise ScheduleRefused("name", f"{terms.name!r} is taken; change that schedule, or choose another name")
    Audit(connection, statements, by, reason).write("add", terms.name, told(terms))
    return get_schedule(target, terms.name, schema=schema)


def change_schedule(
    target: Target, schedule: Schedule | Declared, *, by: str, reason: str, schema: str | None = None
) -> list[str]:
    """Give a schedule of a person's other terms, audited, and return the names of those that have changed.

    With another rule, zone, start or end it goes on with what comes after this moment; what had come before, and no
    relay has seen to, has its turn first, by the terms that it had. With other terms alone it goes on where it stands.

    Raises:
        ScheduleNotFound: there is none of this name.
        ScheduleRefused, NameRefused, PayloadError: it is declared by a program, or a term can't be.
    """
    check_actor(by, reason)
    terms = schedule if isinstance(schedule, Declared) else checked(schedule)
    connection, statements = _at(target, schema)
    row = held(connection, statements, terms.name)
    if row.source != OPERATOR:
        raise ScheduleRefused("name", _declared(row, "change it there and sync"))
    changes = terms.changes(row)
    if changes:
        turn = change(connection, statements, terms, row, changes)
        detail = {"changed": changes} | told(terms) | turn_told(turn)
        Audit(connection, statements, by, reason).write("change", terms.name, detail)
    return changes


def pause_schedule(target: Target, name: str, *, by: str, reason: str, schema: str | None = None) -> bool:
    """Pause a schedule, audited; False: it was paused already. What would come meanwhile is not made up for. A turn
    that is under way is waited for; what has come, and no relay has seen to, has its turn first. Raises
    `ScheduleNotFound`, `NameRefused`.
    """
    return _steer(target, name, "pause", by=by, reason=reason, schema=schema)


def resume_schedule(target: Target, name: str, *, by: str, reason: str, schema: str | None = None) -> bool:
    """Let a paused schedule go on with what comes after this moment, audited; False: it was not paused. Raises
    `ScheduleNotFound`, `NameRefused`.
    """
    return _steer(target, name, "resume", by=by, reason=reason, schema=schema)


def remove_schedule(target: Target, name: str, *, by: str, reason: str, schema: str | None = None) -> None:
    """Delete a schedule, audited; the jobs that it has made stay.

    Raises:
        ScheduleNotFound: there is none of this name.
        ScheduleRefused: a program declares it, and would add it again.
    """
    check_name("name", name)
    check_actor(by, reason)
    connection, statements = _at(target, schema)
    row = held(connection, statements, name)
    if row.source != OPERATOR and row.disabled_at is None:
        raise ScheduleRefused("name", _declared(row, "take it out there and sync"))
    statements.run_within(connection, "remove_schedule", {"name": name})
    Audit(connection, statements, by, reason).write("remove", name, {"kind": row.kind, "rule": row.rule})


def run_schedule_now(target: Target, name: str, *, by: str, reason: str, schema: str | None = None) -> JobRef:
    """Make one more job of a schedule, due at once, in the caller's transaction, audited. The plan does not move.

    A paused or broken one can be run, as far as it is readable.

    Raises:
        ScheduleNotFound: there is none of this name.
        NameRefused: `name`, `by` or `reason` is out of bounds; no SQL ran.
        ScheduleRefused: it is disabled.
        PayloadError: its payload, stored by hand, can't be read.
    """
    check_name("name", name)
    check_actor(by, reason)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    row = held(connection, statements, name)
    if row.disabled_at is not None:
        again = "declare it there and sync, or submit the job itself"
        raise ScheduleRefused("name", f"{name!r} is disabled: {row.source!r} does not declare it any more; {again}")
    key = occurrence_key(name, row.now, secrets.token_hex(6))
    options = Options.of(tenant=row.tenant, priority=row.priority)
    ref = make_now(connection, statements, row, key, options)
    Audit(connection, statements, by, reason).write("run", name, {"job_id": str(ref.id)})
    return ref


@refusing_at_once
async def run_schedule_now_async(
    target: AsyncTarget, name: str, *, by: str, reason: str, schema: str | None = None
) -> JobRef:
    """`run_schedule_now` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "run_schedule_now_async").run_sync(
        lambda inner: run_schedule_now(inner, name, by=by, reason=reason, schema=schema)
    )


def held(connection: sa.Connection, statements: Statements, name: str) -> Any:
    """Return a schedule's row, locked for this transaction. Raises `ScheduleNotFound`."""
    rows = statements.run_within(connection, "hold_schedule", {"name": check_name("name", name)})
    if not rows:
        raise ScheduleNotFound(name)
    return rows[0]


def put(connection: sa.Connection, statements: Statements, terms: Declared, source: str) -> bool:
    """Add a schedule, unless there is one of its name; tell which."""
    return bool(statements.run_within(connection, "add_schedule", terms.parameters() | {"source": source}))


def change(
    connection: sa.Connection, statements: Statements, terms: Declared, row: Any, changes: list[str]
) -> Turn | None:
    """Give a schedule that this transaction holds other terms; without any it is only enabled again. Return the turn
    that it had first by a plan which ends with that; None: its plan goes on. Raises as `last_turn`.
    """
    anew = not changes or terms.plans_anew(changes)
    turn = last_turn(connection, statements, row) if anew else None
    asked = terms.parameters() | {"source": row.source, "since": row.now if anew else None}
    statements.run_within(connection, "change_schedule", asked)
    return turn


def steer(connection: sa.Connection, statements: Statements, row: Any, action: str) -> Turn | None:
    """Pause, disable or resume a schedule that this transaction holds. Return the turn that it had before it was paused
    or disabled; None: it is resumed. Raises as `last_turn`.
    """
    turn = None if action == "resume" else last_turn(connection, statements, row)
    statements.run_within(connection, "steer_schedule", {"name": row.name, "action": action, "since": row.now})
    return turn


@dataclass(frozen=True, slots=True)
class Audit:
    """Who changes schedules, and why; `write` records one change."""

    connection: sa.Connection
    statements: Statements
    by: str
    reason: str

    def write(self, action: str, name: str, detail: dict[str, Any] | None = None) -> None:
        """Record what was done to a schedule."""
        what = {"action": f"schedule.{action}", "subject": name, "detail": json.dumps(detail or {})}
        said = {"actor": self.by, "reason": self.reason}
        self.statements.run_within(self.connection, "write_audit", what | said)


def told(terms: Declared) -> dict[str, Any]:
    """Return what the audit keeps of a schedule's terms: not its payload."""
    return {"kind": terms.kind, "tenant": terms.tenant, "rule": terms.rule, "time_zone": terms.time_zone}


def _steer(target: Target, name: str, action: str, *, by: str, reason: str, schema: str | None) -> bool:
    check_name("name", name)
    check_actor(by, reason)
    connection, statements = _at(target, schema)
    row = held(connection, statements, name)
    if row.paused == (action == "pause"):
        return False
    turn = steer(connection, statements, row, action)
    Audit(connection, statements, by, reason).write(action, name, turn_told(turn))
    return True


def _declared(row: Any, remedy: str) -> str:
    """Return whose a schedule is, and what to do: where it is declared, or here."""
    return f"{row.name!r} is declared by {row.source!r}; {remedy}, or stop it: outbox schedules pause {row.name}"


def _at(target: Target, schema: str | None) -> tuple[sa.Connection, Statements]:
    statements = statements_for(schema_of(target, schema))
    return writable(target), statements
