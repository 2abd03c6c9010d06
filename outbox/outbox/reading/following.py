"""Follows what happens to jobs, look by look: nothing in the tables is indexed by when it changed, so that changes stay
cheap. So a look takes the newest jobs, those that run and the latest dead letters, and compares with the look before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from outbox.database.ids import id_from
from outbox.database.link import Link
from outbox.reading.jobs import jobs_by_ids
from outbox.reading.running import list_running
from outbox_schemas import JobState, JobView

__all__ = ["Change", "Follower", "Seen", "What", "changes"]

MOST = 2000
"""So many jobs are followed to their end at once."""
_BATCH = 1000
_KNOWN = 5 * MOST
# An id's time is the writer's clock's, and its transaction may commit later.
_LATE = timedelta(seconds=30)
_ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class What(StrEnum):
    """What has happened to a job since the look before."""

    SUBMITTED = "submitted"
    STARTED = "started"
    WAITS_AGAIN = "waits_again"
    """An attempt is over, and another will follow."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REDRIVEN = "redriven"


class Seen(NamedTuple):
    """What a look has seen of a job."""

    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has happened. `at`: when; of what has no time on record, when it was seen."""

    at: datetime
    what: What
    job: JobView


def changes(before: Seen | None, job: JobView, since: datetime, now: datetime) -> Iterator[Change]:
    """Yield what has happened to a job since it was seen, or, of one that was not, since an instant. Pure."""
    if before is None and job.created_at >= since:
        yield Change(job.created_at, What.SUBMITTED, job)
    if before is not None and before == Seen(str(job.state), job.attempt_count):
        return
    started = job.lease_started_at
    if job.state == JobState.RUNNING and started is not None and started >= since:
        yield Change(started, What.STARTED, job)
    elif job.state in _ENDED and job.finished_at is not None and job.finished_at >= since:
        yield Change(job.finished_at, What(job.state), job)
    elif job.state == JobState.READY and before is not None:
        yield Change(now, What.REDRIVEN if before.state in _ENDED else What.WAITS_AGAIN, job)


class Follower:
    """Looks again and again, on a link that may fail in between.

    Args:
        wanted: which jobs; others are looked at once and forgotten.
        since: how far back the first look goes.

    What is bounded is missed beyond it: a job that was submitted before, or among more than a thousand between two
    looks, and starts and ends between two looks. Failures are missed only beyond a thousand.
    """

    def __init__(self, wanted: Callable[[JobView], bool], since: timedelta = timedelta(0)) -> None:
        self._wanted = wanted
        self._back = since
        self._since: datetime | None = None
        self._after: datetime | None = None
        self._letters_since: datetime | None = None
        self._followed: OrderedDict[UUID, Seen] = OrderedDict()
        self._done: OrderedDict[UUID, Seen] = OrderedDict()
        self.let_go = 0
        """How many jobs were given up before their end, since more than `MOST` were followed."""

    def look(self, link: Link) -> list[Change]:
        """Return what has happened since the look before, by time. Raises what the link does; the next look then tells
        what this one would have.
        """
        link.run("keep_to_indexes")
        since, after, letters_since = self._marks(link)
        fresh = link.run("fresh_jobs", after=id_from(after - _LATE, 0), since=letters_since, batch=_BATCH)[0]
        running = [job.id for job in list_running(link, limit=_BATCH)]
        # What is done with may have been redriven: then it runs, or has failed once more.
        ids = {*fresh.jobs} - self._done.keys() | self._followed.keys() | {*running, *fresh.letters}
        found = sorted(jobs_by_ids(link, list(ids)), key=lambda job: job.id)
        for gone in self._followed.keys() - {job.id for job in found}:
            del self._followed[gone]  # purged
        told = [change for job in found for change in self._take_in(job, since, fresh.now)]
        self._since, self._after, self._letters_since = since, fresh.now, max(fresh.now - _LATE, since)
        self._bound()
        return sorted(told, key=lambda change: (change.at, change.job.id))

    def _marks(self, link: Link) -> tuple[datetime, datetime, datetime]:
        if self._since is None or self._after is None or self._letters_since is None:
            since: datetime = link.run("read_clock")[0].now - self._back
            self._since, self._after, self._letters_since = since, since, since
        return self._since, self._after, self._letters_since

    def _take_in(self, job: JobView, since: datetime, now: datetime) -> Iterable[Change]:
        seen, wanted = Seen(str(job.state), job.attempt_count), self._wanted(job)
        before = self._followed.pop(job.id, None) or self._done.pop(job.id, None)
        follows = wanted and job.state not in _ENDED
        (self._followed if follows else self._done)[job.id] = seen
        return changes(before, job, since, now) if wanted else []

    def _bound(self) -> None:
        over = len(self._followed) - MOST
        if over > 0:  # those that wait: what runs is met again anyway
            waiting = [one for one, seen in self._followed.items() if seen.state != JobState.RUNNING]
            for one in waiting[:over]:
                self._done[one] = self._followed.pop(one)
                self.let_go += 1
        while len(self._done) > _KNOWN:
            self._done.popitem(last=False)
