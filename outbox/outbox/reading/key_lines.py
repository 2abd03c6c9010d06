"""The line of a concurrency key, for people: who has its slots, who is next, who waits behind whom.

It is read by the key's own indexes, whatever else waits. A job that has no order and was not tried yet stands in its
queue's line like any other; only a walk finds that (`search_jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from outbox.database.link import Link
from outbox_schemas.names import check_key, check_name, check_tenant

__all__ = ["KeyLine", "KeyPlace", "Stands", "key_lines"]

MOST_LINES = 50
"""A key of more groups and tenants has more lines than are shown at once."""


class Stands(StrEnum):
    """How a job stands in the line of its key.

    BLOCKS: it has failed, and those behind it wait for a person. RUNNING, LEASE_EXPIRED, HINTED: it has a slot: by a
    lease that holds; one that has expired, which counts until the slot is given away; a hint that is out. NEXT: it has
    been put back in its queue's line. WAITS: it waits for the key.
    """

    BLOCKS = "blocks"
    RUNNING = "running"
    LEASE_EXPIRED = "lease_expired"
    HINTED = "hinted"
    NEXT = "next"
    WAITS = "waits"


_SLOTS = frozenset({Stands.RUNNING, Stands.LEASE_EXPIRED, Stands.HINTED})


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """One job's place in the line of its key.

    Attributes:
        place: how many go before it, itself included, of those that wait; None: it waits no more.
        lease_expires_at: until when it keeps its slot, unless it is extended.
    """

    job_id: UUID
    stands: Stands
    place: int | None = None
    lease_expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeyLine:
    """The line of one key, in its order.

    Attributes:
        tenant, limit_group, limit_key: whose line it is.
        limit_max: how many may be under way when the next one starts; None where nobody of it is left.
        slots: how many are taken.
        jobs: the first ones; `more`: whether there are others behind them.
    """

    tenant: str
    limit_group: str
    limit_key: str
    limit_max: int | None
    slots: int
    jobs: list[KeyPlace]
    more: bool


def key_lines(
    link: Link, limit_key: str, *, limit_group: str | None = None, tenant: str | None = None, most: int = 50
) -> list[KeyLine]:
    """Return the lines of a key, one for each group and tenant that has one, up to 50, each with its first jobs.

    Raises:
        NameRefused: the key, the group or the tenant is out of bounds.
    """
    check_key(limit_key, "limit_key")
    group = None if limit_group is None else check_name("limit_group", limit_group)
    whose = None if tenant is None else check_tenant(tenant)
    if group is not None and whose is not None:
        scopes = [(group, whose)]
    else:
        rows = link.run("key_scopes", limit_key=limit_key, most=MOST_LINES)
        known = [(row.limit_group, row.tenant) for row in rows]
        scopes = [scope for scope in known if group in {None, scope[0]} and whose in {None, scope[1]}]
    lines = [_line(link, limit_key, *scope, most) for scope in scopes]
    return [line for line in lines if line.jobs]


def _line(link: Link, key: str, group: str, tenant: str, most: int) -> KeyLine:
    rows = link.run("key_line", tenant=tenant, limit_group=group, limit_key=key, most=most + 1)
    jobs: list[KeyPlace] = []
    before = 0
    for row in rows[:most]:
        stands = Stands(row.stands)
        before += stands in {Stands.NEXT, Stands.WAITS}
        place = before if stands in {Stands.NEXT, Stands.WAITS} else None
        jobs.append(KeyPlace(row.job_id, stands, place, row.lease_expires_at if stands in _SLOTS else None))
    return KeyLine(
        tenant, group, key, _most(rows, jobs), sum(one.stands in _SLOTS for one in jobs), jobs, len(rows) > most
    )


def _most(rows: Sequence[object], jobs: Sequence[KeyPlace]) -> int | None:
    """Return what the next one goes by, else those that are under way."""
    numbers = {row.job_id: row.limit_max for row in rows}  # type: ignore[attr-defined]
    waiting = [numbers[one.job_id] for one in jobs if one.place is not None]
    return next(iter([*waiting, *(most for most in numbers.values() if most is not None)]), None)
