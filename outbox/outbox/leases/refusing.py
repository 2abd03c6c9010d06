"""Keeps, with the job, the writes that came after an attempt had lost its lease. For people who ask what became of a
worker; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from outbox.database.arrays import uuid_array
from outbox.database.link import Link
from outbox.leases.leasing import Worker

__all__ = ["REFUSALS_PER_JOB", "RefusedWrite", "record_refusals"]

REFUSALS_PER_JOB = 50


class RefusedWrite(NamedTuple):
    """One write that the fence has refused: whose, and what it was to do."""

    job_id: UUID
    attempt: int
    what: str


def record_refusals(link: Link, refused: Sequence[RefusedWrite], worker: Worker) -> None:
    """Add these to their jobs' histories; of a job that is gone, or has `REFUSALS_PER_JOB` already, nothing is kept."""
    link.run(
        "record_refusals",
        job_ids=uuid_array([item.job_id for item in refused]),
        attempts=[item.attempt for item in refused],
        whats=[item.what for item in refused],
        worker=worker.name,
        limit_per_job=REFUSALS_PER_JOB,
    )
