"""Transitions that time alone brings about. Any number of processes may run them at once: each row is moved by one
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.errors import QueryCanceled

from outbox.database.floors import MOST_QUEUES, Cadence
from outbox.database.link import Link
from outbox_schemas import JobState

__all__ = ["LeaseWatch", "RecoveredLease", "expire_deadlines", "recover_leases"]

_BATCH = 500
# Leases are written long before they end, so only a clock that jumped leaves one below the place where looks begin.
_FULL_EVERY_S = 30.0
# Looks overlap by so much, as claims take a moment to commit.
_SLACK = timedelta(seconds=1)
# A claim may commit much later than its lease began, having waited for a lock: by less than this, which is twice that
# limit. It matters for leases that are shorter, as are those of a queue that nobody knew of until now: to look so far
# back, and for new queues, would be dear each time beside an old snapshot.
_LATE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class RecoveredLease:
    """A lease that was taken back: the job is ready again, or failed where its attempts are used up."""

    job_id: UUID
    state: JobState
    attempt: int


class LeaseWatch:
    """Looks for expired leases, again and again, and remembers up to when all have been seen to. For one thread.

    A lease is looked at when it would end if no heartbeat had extended it, and put off to its new end if one has. So a
    look reads what has come due since the last one, however many leases there are, and however many there have been.

    Leases are found queue by queue. Those of a queue that had none until now are found by the next wide look: each look
    is one while that is cheap, and else one every five seconds, or a sixth of the time if they take longer.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._since: datetime | None = None
        self._queues: list[str] = []
        self._cadence = Cadence(longest_pause_s=_FULL_EVERY_S, pauses=1000)
        self._wide = Cadence()

    def expired(self, *, batch: int = _BATCH) -> list[UUID]:
        """Return the jobs of up to `batch` expired leases, for `recover_leases`."""
        while True:
            rows = self._look(batch)
            seen = [row for row in rows if row.job_id is not None]
            put_off = self._put_off([row.job_id for row in seen if not row.expired])
            # What is left is looked at again: what has expired, and what somebody held just now.
            left = [row.due_at for row in seen if row.job_id not in put_off]
            self._since = min(left, default=seen[-1].due_at if len(seen) == batch else rows[0].instant - _SLACK)
            if len(seen) < batch or not put_off:
                return [row.job_id for row in seen if row.expired]

    def _look(self, batch: int) -> list[Any]:
        try:
            if self._cadence.due:
                with self._cadence.full_look():
                    return self._in_all_queues(None, batch)
            if self._since is None or self._wide.due:
                with self._wide.full_look():
                    return self._in_all_queues(self._since and self._since - _LATE, batch)
            return self._link.run("due_leases", queues=self._queues, since=self._since, batch=batch)
        except QueryCanceled:  # it took too long: go on from where the last one ended
            raise
        except Exception:
            self._since = None  # the next server may be another one
            self._cadence.reset()
            raise

    def _in_all_queues(self, since: datetime | None, batch: int) -> list[Any]:
        rows = self._link.run("due_leases", queues=None, since=since, batch=batch)
        found, known = rows[0].queues, {*self._queues, *rows[0].queues}
        self._queues = sorted(known) if len(known) <= MOST_QUEUES else found
        return rows

    def _put_off(self, job_ids: Sequence[UUID]) -> set[UUID]:
        return {row.job_id for row in self._link.run("put_off_leases", job_ids=list(job_ids))} if job_ids else set()


def recover_leases(link: Link, job_ids: Sequence[UUID] | None = None, *, batch: int = _BATCH) -> list[RecoveredLease]:
    """Take back those of these jobs' leases that have expired; None: up to `batch` of all. Call again at once while it
    returns a full batch.
    """
    ids = LeaseWatch(link).expired(batch=batch) if job_ids is None else list(job_ids)
    rows = link.run("recover_leases", job_ids=ids) if ids else []
    return [RecoveredLease(row.job_id, JobState(row.state), row.attempt_count) for row in rows]


def expire_deadlines(link: Link, *, batch: int = _BATCH) -> list[UUID]:
    """Fail up to `batch` waiting jobs whose deadline has passed."""
    return [row.job_id for row in link.run("expire_deadlines", batch=batch)]
