"""Asking why a job doesn't run, as a service does."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa

from outbox import Explanation, explain
from outbox.database.link import Link
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Ability
from outbox.leases.presence import Presence, Role
from support.database import Database
from support.jobs import ABILITIES


def why(database: Database, job_id: UUID) -> Explanation:
    """Ask as a service does, on a connection of its own."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        return explain(connection, job_id)


def codes(found: Explanation) -> list[str]:
    """Return all reasons in order."""
    return [found.code, *(also.code for also in found.also)]


def staff(link: Link, *, relays: int = 1, abilities: list[Ability] | None = None) -> None:
    """Announce relays and, unless there are no abilities, a consumer."""
    for _ in range(relays):
        Presence(Role.RELAY, worker_identity()).tell(link)
    able = ABILITIES if abilities is None else abilities
    if able:
        Presence(Role.CONSUMER, worker_identity(), queues=["notes"], abilities=able).tell(link)
