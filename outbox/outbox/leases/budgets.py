"""What a failed job has used up, as its history says: nothing that a process remembers enters a decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from outbox.database.arrays import uuid_array
from outbox.database.link import Link
from outbox.database.statements import Statements

__all__ = ["NOTHING_SPENT", "Spent", "spent", "spent_within"]


class Spent(NamedTuple):
    """What a job's ended attempts have used up since its first claim, or since the first one after its last redrive.

    Attributes:
        unknown: attempts that failed in a way that nobody had foreseen.
        throttled: attempts that a dependency put off.
        age_s: seconds since that claim.
    """

    unknown: int = 0
    throttled: int = 0
    age_s: float = 0.0


NOTHING_SPENT = Spent()


def spent(link: Link, job_ids: Sequence[UUID]) -> dict[UUID, Spent]:
    """Return what each of these jobs has used up; an unknown one is left out."""
    return {row.job_id: _spent(row) for row in link.run("spent_budgets", job_ids=uuid_array(job_ids))}


def spent_within(connection: sa.Connection, statements: Statements, job_id: UUID) -> Spent:
    """Return what one job has used up, on the caller's connection."""
    rows = statements.run_within(connection, "spent_budgets", {"job_ids": [job_id]})
    return _spent(rows[0]) if rows else NOTHING_SPENT


def _spent(row: Any) -> Spent:
    return Spent(row.unknown, row.throttled, row.age_s)
