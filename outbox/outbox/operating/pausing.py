"""Pauses: a queue, a kind, a tenant or everything is not started for now. Rows that change at run time, audited.

What runs goes on. Nothing that is paused is released, and hints that are out are taken back, so that a claim refuses
them when they arrive. See `outbox.keeping.pauses` for what relays and consumers see to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, connection_of, refusing_at_once, schema_of, writable
from outbox.texts.actors import check_actor
from outbox_schemas import NameRefused
from outbox_schemas.names import check_choice, check_name, check_tenant

__all__ = [
    "Pause",
    "PauseScope",
    "Paused",
    "list_pauses",
    "list_pauses_async",
    "pause",
    "pause_async",
    "pauses_of",
    "resume",
    "resume_async",
]

# Runways are shorter, so that this takes back all hints of some queues at once; keepers take back the rest.
_BATCH = 5000
# Looks and releases compare with each of them: a thousand cost a sweep some 30 ms, ten thousand half a second.
_MOST = 1000
# In any other a row that has changed since the transaction began would end it; keepers do without it then.
_FRESH = "read committed"
# So often others may come in between before a pause gives up.
_TRIES = 20


class PauseScope(StrEnum):
    """What a pause is of. New ones may be added."""

    EVERYTHING = "everything"
    QUEUE = "queue"
    KIND = "kind"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause in force.

    Attributes:
        scope: what it is of; a plain text if only a newer release knows it.
        name: of which one; empty for everything.
        by, reason: who paused it, and why.
        since: when, by the database's clock.
    """

    scope: PauseScope | str
    name: str
    by: str
    reason: str
    since: datetime

    def __str__(self) -> str:
        """Return what is paused, for people."""
        return f"{self.scope} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Paused:
    """The answer to `pause`.

    Attributes:
        pause: the pause in force.
        begun: False if it was paused already: that pause stays as it is, and nothing was written.
        taken_back: hints on their way that this call has made stale. Those that are missed follow within a second.
    """

    pause: Pause
    begun: bool
    taken_back: int


def pause(
    target: Target, scope: PauseScope | str, name: str = "", *, by: str, reason: str, schema: str | None = None
) -> Paused:
    """Pause a queue, a kind, a tenant or everything in the caller's transaction, until somebody resumes it.

    Within two seconds of the commit no attempt of it begins, not even for hints that are on their way. What runs goes
    on to its end; a retry waits. Deadlines and the age of a job go on counting. Who and why are audited in the same
    transaction. Commit soon: hints that were taken back are locked until then.

    Args:
        target: carries the transaction. In one that is not READ COMMITTED no hint is taken back by this call itself.
        scope: "everything", "queue", "kind" or "tenant".
        name: of which one; none for everything.
        by, reason: who, and why.
        schema: the installation's; default as for `enqueue`.

    Raises:
        NameRefused: something is out of bounds, and no SQL ran; or a thousand other pauses are in force, and nothing
            was written. Several transactions at once may go a little beyond that.
    """
    chosen = _scope(scope, name)
    check_actor(by, reason)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    _check_number(statements.run_within(connection, "list_pauses", {}), chosen, name)
    asked = {"scope": chosen.value, "name": name, "actor": by, "reason": reason}
    row = _paused(connection, statements, asked)
    is_fresh = row.begun and row.isolation == _FRESH
    taken_back = statements.run_within(connection, "take_back", {"batch": _BATCH}) if is_fresh else []
    return Paused(_pause(row), row.begun, len(taken_back))


def resume(
    target: Target, scope: PauseScope | str, name: str = "", *, by: str, reason: str, schema: str | None = None
) -> Pause | None:
    """End a pause in the caller's transaction and return it; None if there was none, and then nothing is written.

    What has waited is due at once, in the order of its own time and priority; a large backlog of a tenant or a kind is
    put back in line little by little. What another pause holds, too, goes on waiting. Arguments and errors are those of
    `pause`.
    """
    chosen = _scope(scope, name)
    check_actor(by, reason)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    asked = {"scope": chosen.value, "name": name, "actor": by, "reason": reason}
    rows = statements.run_within(connection, "resume", asked)
    if not rows:
        return None
    statements.run_within(connection, "wake_relay", {})
    return _pause(rows[0])


def list_pauses(target: Target, *, schema: str | None = None) -> list[Pause]:
    """Return the pauses in force as the caller's transaction sees them, the oldest first."""
    statements = statements_for(schema_of(target, schema))
    return pauses_of(statements.run_within(connection_of(target), "list_pauses", {}))


@refusing_at_once
async def pause_async(
    target: AsyncTarget, scope: PauseScope | str, name: str = "", *, by: str, reason: str, schema: str | None = None
) -> Paused:
    """`pause` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "pause_async").run_sync(
        lambda inner: pause(inner, scope, name, by=by, reason=reason, schema=schema)
    )


@refusing_at_once
async def resume_async(
    target: AsyncTarget, scope: PauseScope | str, name: str = "", *, by: str, reason: str, schema: str | None = None
) -> Pause | None:
    """`resume` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "resume_async").run_sync(
        lambda inner: resume(inner, scope, name, by=by, reason=reason, schema=schema)
    )


@refusing_at_once
async def list_pauses_async(target: AsyncTarget, *, schema: str | None = None) -> list[Pause]:
    """`list_pauses` for an `AsyncSession` or `AsyncConnection`."""
    return await awaitable(target, "list_pauses_async").run_sync(lambda inner: list_pauses(inner, schema=schema))


def pauses_of(rows: Sequence[Any]) -> list[Pause]:
    """Return those of the rows of `list_pauses.sql` that are in force."""
    return [_pause(row) for row in rows if row.resumed_at is None]


def _paused(connection: sa.Connection, statements: Statements, asked: dict[str, str]) -> Any:
    """Return the pause as it stands now, begun here or by another. Nothing comes back from a look between which and its
    write others have paused it, or resumed and paused it again.
    """
    for _ in range(_TRIES):
        rows = statements.run_within(connection, "pause", asked)
        if rows:
            return rows[0]
    raise NameRefused("name", f"is being paused and resumed by others all the time; gave up after {_TRIES} looks")


def _check_number(rows: Sequence[Any], scope: PauseScope, name: str) -> None:
    others = sum(row.resumed_at is None and (row.scope, row.name) != (scope, name) for row in rows)
    if others >= _MOST:
        told = f"is one too many: {others} are in force, {_MOST} are allowed; pause a queue or a kind"
        raise NameRefused("name", told)


def _scope(scope: object, name: object) -> PauseScope:
    chosen = check_choice("scope", scope, PauseScope)
    if chosen is PauseScope.EVERYTHING:
        if name != "":
            raise NameRefused("name", "must be left out: everything has no name; or pause a queue, kind or tenant")
    elif name == "":
        raise NameRefused("name", f"is missing: say which {chosen.value} is meant")
    elif chosen is PauseScope.TENANT:
        check_tenant(name)
    else:
        check_name(chosen.value, name)
    return chosen


def _pause(row: Any) -> Pause:
    scope = PauseScope(row.scope) if row.scope in {*PauseScope} else row.scope
    return Pause(scope, row.name, row.actor, row.reason, row.at)
