"""Limits of queues and tenants, as rows that change at run time, audited: how many jobs run, and how many start a
second.

What runs goes on, whatever a limit becomes. Hints that are out are taken back, and go again as the new limits allow.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from outbox.database.statements import statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, connection_of, refusing_at_once, schema_of
from outbox.limits.changes import Change
from outbox.limits.terms import KEEP, Keep, QueueLimits, TenantLimits
from outbox_schemas.names import check_name, check_tenant

__all__ = [
    "clear_queue",
    "clear_queue_async",
    "clear_tenant",
    "clear_tenant_async",
    "limits_of",
    "list_limits",
    "list_limits_async",
    "set_queue",
    "set_queue_async",
    "set_tenant",
    "set_tenant_async",
]

_MOST_TENANTS = 10_000
_QUEUE_FIELDS = tuple(one.name for one in fields(QueueLimits) if one.name not in ("queue", "updated_at"))


def set_queue(
    target: Target,
    queue: str,
    *,
    by: str,
    reason: str,
    max_running: int | Keep | None = KEEP,
    tenant_max_running: int | Keep | None = KEEP,
    rate_per_s: float | Keep | None = KEEP,
    burst: int | Keep | None = KEEP,
    tenant_rate_per_s: float | Keep | None = KEEP,
    tenant_burst: int | Keep | None = KEEP,
    runway: int | Keep | None = KEEP,
    schema: str | None = None,
) -> QueueLimits:
    """Set limits of a queue in the caller's transaction, and return all that it has then. What is not given stays as it
    is; None takes a limit away.

    To set what is set already writes nothing.

    Two seconds after the commit no more attempts begin than these allow, hints that are on their way included. What
    runs goes on, so that after a limit was lowered more may still run than it says. Who and why are audited in the same
    transaction. Commit soon: until then nothing of a queue that has limits already is released.

    Args:
        target: carries the transaction. In one that is not READ COMMITTED no hint is taken back by this call itself,
            but soon after by a relay or a consumer.
        queue: its name; it needs no jobs yet.
        by, reason: who, and why.
        max_running: the most jobs of it that run at the same time, 0 to 1,000,000.
        tenant_max_running: the same for each tenant without a limit of its own, 1 to 1,000,000.
        rate_per_s: the most that start in a second, on average, 0.0001 to 1,000,000.
        burst: the most that start at once after a quiet time, 1 to 1,000,000; 1 if there is a rate and none is given.
        tenant_rate_per_s, tenant_burst: the same for each tenant without a rate of its own.
        runway: the most hints of it that relays let be out and unclaimed, 1 to 1,000,000; None: as their setting says.
            Of what is out beyond a shorter one those that went last are taken back.
        schema: the installation's; default as for `enqueue`.

    Raises:
        NameRefused: something is out of bounds, or a burst is given where there is no rate; nothing was written.
    """
    terms = {
        "max_running": max_running,
        "tenant_max_running": tenant_max_running,
        "rate_per_s": rate_per_s,
        "burst": burst,
        "tenant_rate_per_s": tenant_rate_per_s,
        "tenant_burst": tenant_burst,
        "runway": runway,
    }
    change = Change(target, check_name("queue", queue), terms, by=by, reason=reason, schema=schema)
    done = change.of_queue(_QUEUE_FIELDS)
    return QueueLimits(queue, **done.terms, updated_at=done.updated_at)


def set_tenant(
    target: Target,
    queue: str,
    tenant: str,
    *,
    by: str,
    reason: str,
    max_running: int | Keep | None = KEEP,
    rate_per_s: float | Keep | None = KEEP,
    burst: int | Keep | None = KEEP,
    weight: int | Keep = KEEP,
    schema: str | None = None,
) -> TenantLimits:
    """Set a tenant's own limits in a queue, instead of those that the queue gives to each; and its weight, 1 to
    1,000,000. Else as `set_queue`; None means: what the queue gives to each. The queue's own limits hold besides.
    """
    check_tenant(tenant)
    terms = {"max_running": max_running, "rate_per_s": rate_per_s, "burst": burst, "weight": weight}
    change = Change(target, check_name("queue", queue), terms, by=by, reason=reason, schema=schema)
    done = change.of_tenant(tenant)
    return TenantLimits(queue, tenant, **done.terms, updated_at=done.updated_at)


def clear_queue(target: Target, queue: str, *, by: str, reason: str, schema: str | None = None) -> QueueLimits:
    """Take all limits of a queue away, as `set_queue` does with None for each. Those of single tenants stay."""
    none = dict.fromkeys(_QUEUE_FIELDS)
    return set_queue(target, queue, by=by, reason=reason, schema=schema, **none)


def clear_tenant(
    target: Target, queue: str, tenant: str, *, by: str, reason: str, schema: str | None = None
) -> TenantLimits:
    """Take a tenant's own limits and weight in a queue away: it has what the queue gives to each."""
    none = {"max_running": None, "rate_per_s": None, "burst": None}
    return set_tenant(target, queue, tenant, by=by, reason=reason, weight=1, schema=schema, **none)


def list_limits(target: Target, *, schema: str | None = None) -> list[QueueLimits | TenantLimits]:
    """Return the limits in force as the caller's transaction sees them: of each queue, then those of its tenants, up to
    10,000 of these.
    """
    statements = statements_for(schema_of(target, schema))
    return limits_of(statements.run_within(connection_of(target), "list_limits", {"batch": _MOST_TENANTS}))


@refusing_at_once
async def set_queue_async(target: AsyncTarget, queue: str, **given: Any) -> QueueLimits:
    """`set_queue` for an `AsyncSession` or `AsyncConnection`; the same arguments, promises and errors."""
    return await awaitable(target, "set_queue_async").run_sync(lambda inner: set_queue(inner, queue, **given))


@refusing_at_once
async def set_tenant_async(target: AsyncTarget, queue: str, tenant: str, **given: Any) -> TenantLimits:
    """`set_tenant` for an `AsyncSession` or `AsyncConnection`; the same arguments, promises and errors."""
    return await awaitable(target, "set_tenant_async").run_sync(lambda inner: set_tenant(inner, queue, tenant, **given))


@refusing_at_once
async def clear_queue_async(
    target: AsyncTarget, queue: str, *, by: str, reason: str, schema: str | None = None
) -> QueueLimits:
    """`clear_queue` for an `AsyncSession` or `AsyncConnection`."""
    return await awaitable(target, "clear_queue_async").run_sync(
        lambda inner: clear_queue(inner, queue, by=by, reason=reason, schema=schema)
    )


@refusing_at_once
async def clear_tenant_async(
    target: AsyncTarget, queue: str, tenant: str, *, by: str, reason: str, schema: str | None = None
) -> TenantLimits:
    """`clear_tenant` for an `AsyncSession` or `AsyncConnection`."""
    return await awaitable(target, "clear_tenant_async").run_sync(
        lambda inner: clear_tenant(inner, queue, tenant, by=by, reason=reason, schema=schema)
    )


@refusing_at_once
async def list_limits_async(target: AsyncTarget, *, schema: str | None = None) -> list[QueueLimits | TenantLimits]:
    """`list_limits` for an `AsyncSession` or `AsyncConnection`."""
    return await awaitable(target, "list_limits_async").run_sync(lambda inner: list_limits(inner, schema=schema))


def limits_of(rows: list[Any]) -> list[QueueLimits | TenantLimits]:
    """Return what the rows of `list_limits.sql` say."""
    return [
        QueueLimits(row.queue, **{name: getattr(row, name) for name in _QUEUE_FIELDS}, updated_at=row.updated_at)
        if row.tenant is None
        else TenantLimits(row.queue, row.tenant, row.max_running, row.rate_per_s, row.burst, row.weight, row.updated_at)
        for row in rows
    ]
