"""Limits on the queue of a test, and releases under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox import set_queue, set_tenant
from outbox.database.link import Link
from outbox.releasing.limited import LimitedRelease, release_limited
from support.database import Database

WHO = {"by": "ada", "reason": "the partner asked for it"}


def limit(database: Database, **terms: Any) -> None:
    """Set the queue's limits and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "notes", **WHO, **terms)


def limit_tenant(database: Database, tenant: str, **terms: Any) -> None:
    """Set a tenant's limits and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_tenant(connection, "notes", tenant, **WHO, **terms)


def go(link: Link, batch: int = 100, **options: Any) -> LimitedRelease:
    """Release what the limits allow."""
    return release_limited(link, "notes", batch=batch, **({"rehint_after_s": 10.0} | options))


def ids(link: Link, batch: int = 100, **options: Any) -> list[UUID]:
    """Release what the limits allow, and return the jobs in order."""
    return [hint.job_id for hint in go(link, batch, **options).hints]


def tenants_of(database: Database, jobs: Sequence[UUID]) -> list[str]:
    """Return whose these jobs are, in their order."""
    owners = dict(database.rows("SELECT id, tenant FROM {s}.jobs"))
    return [owners[job] for job in jobs]


def phases(database: Database) -> dict[str, int]:
    """Return how many rows are in each phase."""
    return dict(database.rows("SELECT phase, count(*)::int FROM {s}.outbox GROUP BY 1"))
