"""Jobs that wait for sets of others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox import (
    fan_in,
)
from outbox.database.link import Link
from outbox.joins.keeping import JoinWatch
from outbox.leases.leasing import Claimed
from support.database import Database
from support.jobs import OtherNote, release_all

THEN = OtherNote(key="then")


def wait_for(database: Database, jobs: Any, then: Any = THEN, **options: Any) -> UUID:
    """Commit a job that waits for others."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        return fan_in(connection, jobs, then, **options).id


def due(link: Link) -> list[UUID]:
    """Look through the sets as a relay does, and release what is due then."""
    JoinWatch().close(link)
    return [hint.job_id for hint in release_all(link, "others")]


def ids_of(claimed: list[Claimed]) -> list[UUID]:
    """Return the jobs of claims."""
    return [item.lease.job_id for item in claimed]
