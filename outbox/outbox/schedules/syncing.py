"""Schedules from code: a program declares all of its own, and the stored ones are made to agree, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, refusing_at_once, schema_of, writable
from outbox.schedules.declaring import Declared, Schedule, checked
from outbox.schedules.last_turns import turn_told
from outbox.schedules.operating import OPERATOR, Audit, change, held, put, steer, told
from outbox.schedules.turns import Turn
from outbox.texts.actors import check_actor
from outbox_schemas import ScheduleNotFound, ScheduleRefused
from outbox_schemas.names import check_flag, check_name

__all__ = ["Synced", "sync_schedules", "sync_schedules_async"]

MOST = 10_000
# In any other it can't be told without a lock what stands: the snapshot may be older than the sync before.
_FRESH = "read committed"


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync has done, or would do: the names of the schedules that were added, changed (with the names of their
    terms), enabled again, disabled, and left alone. Of those that were changed or disabled, `broken`: which could not
    have the turn first that was due, with the reason; what had come of them is passed over.
    """

    added: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    enabled: list[str] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def sync_schedules(
    target: Target,
    schedules: Iterable[Schedule],
    *,
    source: str,
    by: str,
    reason: str,
    preview: bool = False,
    schema: str | None = None,
) -> Synced:
    """Make the stored schedules of one source agree with those that are declared, in the caller's transaction.

    New ones are added, others are changed, and those that are not declared any more are disabled; they keep their
    counts, and are enabled again when they are declared again. One that is disabled, or gets another plan, has its turn
    first, if that is due: jobs are made of what had come. Pauses are people's, and stay. Each change is audited.
    Any number of processes may do it at once; the last declaration stands.

    Args:
        target: an open `Session` or `Connection`.
        schedules: all that this source declares.
        source: who declares them, as kinds are named: the service, say. "operator" is what people have added.
        by, reason: who and why.
        preview: change nothing, and return what would be done.
        schema: as in `enqueue`.

    Raises:
        ScheduleRefused, NameRefused, PayloadError: a declaration can't be, or its name belongs to another source.
            Nothing is changed.
    """
    check_actor(by, reason)
    if check_name("source", source) == OPERATOR:
        raise ScheduleRefused("source", f'"{OPERATOR}" is what people have added; name the service')
    check_flag("preview", preview)
    declared = {terms.name: terms for terms in _all(schedules)}
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    with connection.begin_nested() as nested:
        done = _Sync(connection, statements, source, by, reason).run(declared)
        if preview:
            nested.rollback()
    return done


@refusing_at_once
async def sync_schedules_async(
    target: AsyncTarget,
    schedules: Iterable[Schedule],
    *,
    source: str,
    by: str,
    reason: str,
    preview: bool = False,
    schema: str | None = None,
) -> Synced:
    """`sync_schedules` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "sync_schedules_async").run_sync(
        lambda inner: sync_schedules(
            inner, schedules, source=source, by=by, reason=reason, preview=preview, schema=schema
        )
    )


class _Sync:
    def __init__(self, connection: sa.Connection, statements: Statements, source: str, by: str, reason: str) -> None:
        self._connection = connection
        self._statements = statements
        self._source = source
        self._audit = Audit(connection, statements, by, reason).write
        self._done = Synced()

    def run(self, declared: dict[str, Declared]) -> Synced:
        # What one reads here must not be changed by another before both are done, or parts of both would stand.
        key = {"key": _lock_key(self._statements.schema, self._source)}
        (held_source,) = self._statements.run_within(self._connection, "hold_source", key)
        own = {"name": None, "source": self._source}
        stored = {row.name: row for row in self._statements.run_within(self._connection, "list_schedules", own)}
        for name in sorted(stored.keys() | declared.keys()):  # everybody locks them in this order
            fresh = held_source.isolation == _FRESH and name in stored
            if fresh and _agrees(stored[name], declared.get(name)):
                # It isn't locked, so that it has its turns meanwhile, however long the transaction stays open.
                self._done.unchanged.extend([name] if name in declared else [])
            elif name in declared:
                self._declare(declared[name])
            else:
                self._disable(name)
        return self._done

    def _declare(self, terms: Declared) -> None:
        if put(self._connection, self._statements, terms, self._source):
            self._done.added.append(terms.name)
            self._audit("add", terms.name, told(terms))
            return
        row = self._held(terms.name)
        if row is None:  # it was removed in between
            self._declare(terms)
            return
        if row.source != self._source:
            raise ScheduleRefused("name", _taken(row))
        changes = terms.changes(row)
        if row.disabled_at is not None:
            self._change(terms, row, [])
            self._done.enabled.append(terms.name)
            self._audit("enable", terms.name, {"changed": changes} | told(terms))
        elif changes:
            turn = self._change(terms, row, changes)
            self._done.changed[terms.name] = changes
            self._audit("change", terms.name, {"changed": changes} | told(terms) | turn_told(turn))
        else:
            self._done.unchanged.append(terms.name)

    def _change(self, terms: Declared, row: Any, changes: list[str]) -> Turn | None:
        return self._noted(change(self._connection, self._statements, terms, row, changes))

    def _disable(self, name: str) -> None:
        row = self._held(name)
        if row is not None and row.disabled_at is None and row.source == self._source:
            turn = self._noted(steer(self._connection, self._statements, row, "disable"))
            self._done.disabled.append(name)
            self._audit("disable", name, turn_told(turn))

    def _noted(self, turn: Turn | None) -> Turn | None:
        if turn is not None and turn.error is not None:
            self._done.broken[turn.name] = turn.error
        return turn

    def _held(self, name: str) -> Any:
        try:
            return held(self._connection, self._statements, name)
        except ScheduleNotFound:
            return None


def _taken(row: Any) -> str:
    """Return what becomes of a name that belongs to another source."""
    name, remove = row.name, f"`outbox schedules remove {row.name}`"
    if row.source == OPERATOR:
        return f"{name!r} was added by a person; remove that one first ({remove}), or choose another name"
    its = "does not declare it any more" if row.disabled_at is not None else "has to leave it out and sync first"
    return (
        f"{name!r} belongs to the source {row.source!r}, which {its}; remove it then ({remove}), or choose another name"
    )


def _lock_key(schema: str, source: str) -> int:
    """Return the advisory lock's key for the syncs of a source: a signed 64-bit integer, ever the same."""
    digest = blake2b(f"outbox-relay schedules: {schema}: {source}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _agrees(row: Any, terms: Declared | None) -> bool:
    """Tell whether a stored schedule is as it is declared, or disabled if it isn't."""
    if terms is None:
        return row.disabled_at is not None
    return row.disabled_at is None and not terms.changes(row)


def _all(schedules: Iterable[Schedule]) -> list[Declared]:
    if isinstance(schedules, Schedule) or not isinstance(schedules, Iterable):
        raise ScheduleRefused("schedules", f"must be an iterable of Schedules, not {type(schedules).__name__}")
    found = [checked(schedule) for schedule in schedules]
    if len(found) > MOST:
        raise ScheduleRefused("schedules", f"are {len(found)}; one source may declare {MOST}")
    twice = [name for name, times in Counter(terms.name for terms in found).items() if times > 1]
    if twice:
        raise ScheduleRefused("name", f"{twice[0]!r} is declared twice")
    return found
