"""Searches for jobs, the newest first, in a bounded time.

`jobs` has no index on what changes, so that updates stay cheap. What is few has a short way: what has not ended is in
the outbox, what has failed has its dead letter, a rare tenant or kind has the logical keys' index. Everything else is a
walk back through the ids, page by page, which ends with the time given, says how far it came, and can be gone on with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outbox.database.ids import made_at
from outbox.database.link import Link
from outbox.reading.jobs import jobs_by_ids
from outbox_schemas import JobState, JobView

__all__ = ["JobPage", "search_jobs"]

_LOWEST, _BEYOND = UUID(int=0), UUID(int=(1 << 128) - 1)
_FIRST_PAGE, _LARGEST_PAGE = 500, 16_000
# So many jobs of a tenant or kind are read at once and sorted here; with more there is soon one on the walk.
_FEW = 1000
_MOST_TENANTS = 50
_UNFINISHED = frozenset({JobState.READY, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class JobPage:
    """What a search has found.

    Attributes:
        jobs: the newest first.
        before: where to go on: `before` of the next search; None if there is nothing more.
        complete: False if the time was over before the limit was reached: there may be more further back.
        searched_to: how far back it came then.
    """

    jobs: list[JobView]
    before: UUID | None
    complete: bool = True
    searched_to: datetime | None = None


def search_jobs(
    link: Link,
    *,
    state: JobState | None = None,
    queue: str | None = None,
    kind: str | None = None,
    tenant: str | None = None,
    correlation_id: str | None = None,
    subject: str | None = None,
    limit_group: str | None = None,
    limit_key: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
    within_s: float = 0.2,
) -> JobPage:
    """Return the newest jobs that fit every filter given, of those whose id is below `before`.

    It ends with `limit` jobs, with the last job there is, or, between two pages, after `within_s` seconds.
    """
    filters = {
        "state": None if state is None else JobState(state).value,
        "queue": queue,
        "kind": kind,
        "tenant": tenant,
        "subject": subject,
        "limit_group": limit_group,
        "limit_key": limit_key,
    }
    below = _BEYOND if before is None else before
    if correlation_id is not None:
        rows = link.run("find_correlated", correlation_id=correlation_id, below=below, batch=limit, **filters)
        return _page(link, [row.id for row in rows], limit)
    few = _about(link, filters)
    if few is None:
        few = _few(link, tenant, kind)
    if few is not None:
        return _fitting(jobs_by_ids(link, [job_id for job_id in few if job_id < below]), filters, limit)
    table, statement = _way(link, state)
    found: list[UUID] = []
    until, low = time.monotonic() + within_s, below
    for low, beyond in _pages(link, table, below, until):
        found += [row.id for row in link.run(statement, low=low, below=beyond, batch=limit - len(found), **filters)]
        if len(found) == limit:
            return _page(link, found, limit)
    if low == _LOWEST:
        return JobPage(jobs_by_ids(link, found), None)
    return JobPage(jobs_by_ids(link, found), low, complete=False, searched_to=made_at(low))


def _about(link: Link, filters: Mapping[str, str | None]) -> list[UUID] | None:
    """Return the ids of what has not ended of a subject if only such is asked for, and it is few; else None."""
    tenant, kind, subject = filters["tenant"], filters["kind"], filters["subject"]
    if None in {tenant, kind, subject} or filters["state"] not in _UNFINISHED:
        return None
    ids = [row.id for row in link.run("find_about", tenant=tenant, about=f"{kind}:{subject}", batch=_FEW + 1)]
    return ids if len(ids) <= _FEW else None


def _few(link: Link, tenant: str | None, kind: str | None) -> list[UUID] | None:
    """Return the ids of all jobs of a tenant and kind if these are few, else None."""
    if tenant is None and kind is None:
        return None
    rows = link.run("find_few", tenant=tenant, kind=kind, most_tenants=_MOST_TENANTS, batch=_FEW + 1)
    ids = [row.id for row in rows if row.id is not None]
    many_tenants = any(row.place > _MOST_TENANTS for row in rows)
    return None if many_tenants or len(ids) > _FEW else ids


def _fitting(jobs: list[JobView], filters: Mapping[str, str | None], limit: int) -> JobPage:
    fit = [job for job in jobs if all(value in {None, getattr(job, name)} for name, value in filters.items())]
    return JobPage(fit[:limit], fit[limit - 1].id if len(fit) > limit else None)


def _way(link: Link, state: JobState | None) -> tuple[str, str]:
    """Return the table to walk through, and the statement that finds the jobs of a page of it."""
    if state in _UNFINISHED:
        return "outbox", "find_unfinished"
    # Letters of before that table was there are still being written: until then it lacks some.
    if state == JobState.FAILED and not link.run("dead_letter_backlog")[0].unfinished:
        return "dead_letters", "find_failed"
    return "jobs", "find_jobs"


def _pages(link: Link, table: str, below: UUID, until: float) -> Iterator[tuple[UUID, UUID]]:
    """Yield ranges of ids from the newest back, longer and longer ones, while there is time."""
    size = _FIRST_PAGE
    while below > _LOWEST:
        rows = link.run(f"page_of_{table}", below=below, page=size)
        low = rows[0].low if rows else _LOWEST
        yield low, below
        if time.monotonic() >= until:
            return
        below, size = low, min(size * 4, _LARGEST_PAGE)


def _page(link: Link, ids: list[UUID], limit: int) -> JobPage:
    return JobPage(jobs_by_ids(link, ids), ids[-1] if len(ids) == limit else None)
