"""Bounds of queues: how full one may be, or a tenant's part of it, and what becomes of a job beyond. Rows that change
at run time, audited. See `outbox.submitting.fullness` for how submissions are held to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from outbox.database.statements import statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, connection_of, refusing_at_once, schema_of, writable
from outbox.reading.queue_figures import MOST
from outbox.texts.actors import check_actor
from outbox_schemas import NameRefused
from outbox_schemas.names import check_choice, check_name, check_priority, check_tenant, nature_of

__all__ = [
    "BoundPolicy",
    "QueueBound",
    "bound_queue",
    "bound_queue_async",
    "bounds_of",
    "list_bounds",
    "list_bounds_async",
    "unbound_queue",
    "unbound_queue_async",
]

_LONGEST = timedelta(hours=1)
_LONGEST_EVER = timedelta(days=30)


class BoundPolicy(StrEnum):
    """What becomes of a job that is submitted to a full queue. New ones may be added.

    refuse: `QueueFull`. defer: it is taken with a later `run_at`: when the backlog will have drained, by its estimate.
    shed: `QueueFull` for priorities below a given one; the others are taken.
    """

    REFUSE = "refuse"
    DEFER = "defer"
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class QueueBound:
    """One bound in force.

    Attributes:
        queue, tenant: of what; tenant is None for the whole queue.
        max_backlog: due jobs at which the queue is full; None: no such limit.
        max_age: for how long the oldest may have been due; None: no such limit.
        policy: what then becomes of a job; a plain text if only a newer release knows it.
        keeps: the least priority that `shed` lets pass.
        longest: the most by which `defer` puts a job off.
        by, reason, since: who set it, why, and when by the database's clock.
    """

    queue: str
    tenant: str | None
    max_backlog: int | None
    max_age: timedelta | None
    policy: BoundPolicy | str
    keeps: int
    longest: timedelta
    by: str
    reason: str
    since: datetime


def bound_queue(
    target: Target,
    queue: str,
    *,
    by: str,
    reason: str,
    tenant: str | None = None,
    max_backlog: int | None = None,
    max_age: timedelta | None = None,
    policy: BoundPolicy | str = BoundPolicy.REFUSE,
    keeps: int = 0,
    longest: timedelta = _LONGEST,
    schema: str | None = None,
) -> QueueBound:
    """Set the bound of a queue, or of a tenant's part of it, in the caller's transaction; one that it had is replaced.

    A queue is full once the last figures show so many due jobs, or so old a one; these may be seconds old, or half a
    minute where the backlog is huge. Jobs of new releases are held to it from the commit on, older writers never.

    Args:
        target: carries the transaction.
        queue: the queue's name; it need not exist yet.
        by, reason: who, and why; audited in the same transaction.
        tenant: only this tenant's jobs; None for all of the queue.
        max_backlog: 1 to 100,000. max_age: more than nothing. At least one of the two.
        policy: "refuse", "defer" or "shed".
        keeps: with "shed", the least priority that is let pass, -100 to 100.
        longest: with "defer", the most by which a job is put off; one second to 30 days.
        schema: the installation's; default as for `enqueue`.

    Raises:
        NameRefused: something is out of bounds, or `keeps` or `longest` is given and another policy; no SQL ran.
    """
    check_actor(by, reason)
    chosen = check_choice("policy", policy, BoundPolicy)
    parameters = {
        **_place(queue, tenant),
        "max_backlog": _check_backlog(max_backlog, max_age),
        "max_oldest_s": None if max_age is None else _check_span("max_age", max_age).total_seconds(),
        "policy": chosen.value,
        "keeps": check_priority(keeps, "keeps"),
        "longest_s": _check_span("longest", longest, timedelta(seconds=1)).total_seconds(),
        "actor": by,
        "reason": reason,
    }
    _check_needed("keeps", keeps != 0, chosen, BoundPolicy.SHED)
    _check_needed("longest", longest != _LONGEST, chosen, BoundPolicy.DEFER)
    statements = statements_for(schema_of(target, schema))
    return bounds_of(statements.run_within(writable(target), "bound_queue", parameters))[0]


def unbound_queue(
    target: Target, queue: str, *, by: str, reason: str, tenant: str | None = None, schema: str | None = None
) -> QueueBound | None:
    """Take a bound away in the caller's transaction and return it; None if there was none, and then nothing is written.
    Arguments and errors are those of `bound_queue`.
    """
    check_actor(by, reason)
    parameters = {**_place(queue, tenant), "actor": by, "reason": reason}
    statements = statements_for(schema_of(target, schema))
    gone = bounds_of(statements.run_within(writable(target), "unbound_queue", parameters))
    return gone[0] if gone else None


def list_bounds(target: Target, *, schema: str | None = None) -> list[QueueBound]:
    """Return the bounds in force as the caller's transaction sees them, by queue and tenant."""
    statements = statements_for(schema_of(target, schema))
    return bounds_of(statements.run_within(connection_of(target), "list_bounds", {}))


@refusing_at_once
async def bound_queue_async(target: AsyncTarget, queue: str, **options: Any) -> QueueBound:
    """`bound_queue` for an `AsyncSession` or `AsyncConnection`; the same arguments, promises and errors."""
    return await awaitable(target, "bound_queue_async").run_sync(lambda inner: bound_queue(inner, queue, **options))


@refusing_at_once
async def unbound_queue_async(target: AsyncTarget, queue: str, **options: Any) -> QueueBound | None:
    """`unbound_queue` for an `AsyncSession` or `AsyncConnection`; the same arguments, promises and errors."""
    return await awaitable(target, "unbound_queue_async").run_sync(lambda inner: unbound_queue(inner, queue, **options))


@refusing_at_once
async def list_bounds_async(target: AsyncTarget, *, schema: str | None = None) -> list[QueueBound]:
    """`list_bounds` for an `AsyncSession` or `AsyncConnection`."""
    return await awaitable(target, "list_bounds_async").run_sync(lambda inner: list_bounds(inner, schema=schema))


def bounds_of(rows: Sequence[Any]) -> list[QueueBound]:
    """Return the bounds that rows of the statements about them hold."""
    return [
        QueueBound(
            row.queue,
            row.tenant or None,
            row.max_backlog,
            None if row.max_oldest_s is None else timedelta(seconds=row.max_oldest_s),
            BoundPolicy(row.policy) if row.policy in {*BoundPolicy} else row.policy,
            row.keeps,
            timedelta(seconds=row.longest_s),
            row.actor,
            row.reason,
            row.at,
        )
        for row in rows
    ]


def _place(queue: str, tenant: str | None) -> dict[str, str]:
    return {"queue": check_name("queue", queue), "tenant": "" if tenant is None else check_tenant(tenant)}


def _check_backlog(max_backlog: object, max_age: object) -> int | None:
    if max_backlog is None:
        if max_age is None:
            raise NameRefused("max_backlog", "is missing, and so is max_age; give at least one of them")
        return None
    if isinstance(max_backlog, bool) or not isinstance(max_backlog, int) or not 1 <= max_backlog <= MOST:
        told = f"must be a whole number from 1 to {MOST}, as far as a backlog is counted, not {nature_of(max_backlog)}"
        raise NameRefused("max_backlog", told)
    return max_backlog


def _check_needed(field: str, given: bool, policy: BoundPolicy, needed: BoundPolicy) -> None:
    """Refuse a term that another policy goes by: whoever gives it takes it to hold."""
    if given and policy is not needed:
        raise NameRefused(
            field, f"means nothing with policy {policy.value}: leave it out, or give policy {needed.value}"
        )


def _check_span(field: str, span: object, least: timedelta = timedelta(milliseconds=1)) -> timedelta:
    if not isinstance(span, timedelta) or not least <= span <= _LONGEST_EVER:
        given = str(span) if isinstance(span, timedelta) else nature_of(span)
        allowed = f"from {least.total_seconds():g} s to {_LONGEST_EVER.days} days"
        raise NameRefused(field, f"must be a timedelta {allowed}, not {given}")
    return span
