"""Transitions that time alone brings about. Any number of processes may run them at once: each row is moved by one
of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from outbox.link import Link
from outbox_schemas import JobState

__all__ = ["RecoveredLease", "expire_deadlines", "recover_leases"]

_BATCH = 500


@dataclass(frozen=True, slots=True)
class RecoveredLease:
    """A lease that was taken back: the job is ready again, or failed where its attempts are used up."""

    job_id: UUID
    state: JobState
    attempt: int


def recover_leases(link: Link, *, batch: int = _BATCH) -> list[RecoveredLease]:
    """Take back up to `batch` expired leases; call again at once while it returns a full batch."""
    rows = link.run("recover_leases", batch=batch)
    return [RecoveredLease(row.job_id, JobState(row.state), row.attempt_count) for row in rows]


def expire_deadlines(link: Link, *, batch: int = _BATCH) -> list[UUID]:
    """Fail up to `batch` waiting jobs whose deadline has passed."""
    return [row.job_id for row in link.run("expire_deadlines", batch=batch)]
