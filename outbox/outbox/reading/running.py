"""What runs just now, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outbox.database.link import Link

__all__ = ["RunningJob", "list_running"]

_LOOK = 5000


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job under a lease.

    Attributes:
        for_s: for how many seconds, by the database's clock.
        lease_s: in how many seconds its lease ends unless a heartbeat extends it; negative: it is over.
        progress: the marker that its latest heartbeat brought.
    """

    id: UUID
    queue: str
    kind: str
    tenant: str
    logical_key: str
    attempt: int
    worker: str | None
    started_at: datetime | None
    for_s: float | None
    lease_s: float
    progress: str | None


def list_running(link: Link, *, queue: str | None = None, limit: int = 50) -> list[RunningJob]:
    """Return the jobs of a queue, or of all, that run, those first that were started first: of the first 5,000 leases
    that are met.
    """
    fields = list(RunningJob.__dataclass_fields__)
    rows = link.run("running_jobs", queue=queue, look=_LOOK, batch=limit)
    return [RunningJob(**{name: getattr(row, name) for name in fields}) for row in rows]
