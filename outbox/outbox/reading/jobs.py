"""Reads for people and programs: one job, its attempts, its relatives. Payloads stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, connection_of, refusing_at_once, schema_of
from outbox.keeping.pauses import ASIDE
from outbox.sealing.envelope import hidden
from outbox.submitting.submission import HELD
from outbox_schemas import (
    AttemptView,
    CancelledAfter,
    ErrorView,
    JobNotFound,
    JobState,
    JobView,
    OwedView,
    RefusalView,
    TreeView,
)
from outbox_schemas.names import check_id, check_key, check_name, check_tenant

__all__ = [
    "PAGE",
    "database_time",
    "find_job",
    "get_job",
    "get_job_async",
    "job_tree",
    "jobs_by_ids",
    "known_job",
    "list_attempts",
    "list_refusals",
    "show_job",
]

PAGE = 50
"""How many attempts or effects of one job are read unless more are asked for."""

_LEFT_LIMIT = 1000


def get_job(target: Target, job_id: UUID, *, schema: str | None = None) -> JobView | None:
    """Return a job by its id as the caller's transaction sees it, or None. Raises `NameRefused` for what is no UUID."""
    return _read(
        target, {"job_id": check_id("job_id", job_id), "tenant": None, "kind": None, "logical_key": None}, schema
    )


def find_job(
    target: Target, *, kind: str, logical_key: str, tenant: str = "default", schema: str | None = None
) -> JobView | None:
    """Return the job that holds a logical key in the scope (tenant, kind), or None."""
    parameters = {
        "job_id": None,
        "tenant": check_tenant(tenant),
        "kind": check_name("kind", kind),
        "logical_key": check_key(logical_key),
    }
    return _read(target, parameters, schema)


@refusing_at_once
async def get_job_async(target: AsyncTarget, job_id: UUID, *, schema: str | None = None) -> JobView | None:
    """`get_job` for an `AsyncSession` or `AsyncConnection`; the same errors."""
    return await awaitable(target, "get_job_async").run_sync(lambda inner: get_job(inner, job_id, schema=schema))


def show_job(link: Link, job_id: UUID) -> tuple[JobView, list[AttemptView]] | None:
    """Return a job and its newest ended attempts, as `list_attempts` does, or None."""
    job = _linked_job(link, job_id)
    return None if job is None else (job, list_attempts(link, job_id))


def known_job(link: Link, job_id: UUID) -> JobView:
    """Return a job. Raises `JobNotFound` where none has this id."""
    job = _linked_job(link, job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


def list_attempts(link: Link, job_id: UUID, *, limit: int = PAGE, before: int | None = None) -> list[AttemptView]:
    """Return the newest `limit` ended attempts of a job, oldest first; with `before`, of those with a lower number.

    Numbers begin at 1 and have no gaps: there are as many earlier ones as the first number says, less one.
    """
    rows = link.run("list_attempts", job_id=job_id, before=before, batch=limit)
    return [_unsealed(AttemptView.model_validate(row)) for row in rows]


def list_refusals(link: Link, job_id: UUID) -> list[RefusalView]:
    """Return the writes of a job's attempts that came too late and were refused, oldest first."""
    return [RefusalView.model_validate(row) for row in link.run("list_refusals", job_id=job_id)]


def jobs_by_ids(link: Link, job_ids: Sequence[UUID]) -> list[JobView]:
    """Return those of the named jobs that are there, the newest first."""
    return [_job_view(row) for row in link.run("list_jobs", job_ids=list(job_ids))] if job_ids else []


def job_tree(link: Link, job_id: UUID, *, depth: int = 50, limit: int = 1000) -> list[TreeView]:
    """Return the workflow that a job belongs to, from any job of it: the first job, and what followed, by levels.

    Empty if there is no such job. At most `depth` levels up and as many down, and `limit` jobs: a list of that length
    may not be all.
    """
    rows = link.run("job_tree", job_id=job_id, depth=depth, batch=limit, left_limit=_LEFT_LIMIT)
    return [TreeView.model_validate(row) for row in rows]


def database_time(link: Link) -> datetime:
    """Return the database's time, which ages are measured against."""
    now: datetime = link.run("read_clock")[0].now
    return now


def _linked_job(link: Link, job_id: UUID) -> JobView | None:
    rows = link.run("get_job", job_id=job_id, tenant=None, kind=None, logical_key=None)
    return _job_view(rows[0]) if rows else None


def _read(target: Target, parameters: dict[str, Any], schema: str | None) -> JobView | None:
    rows = statements_for(schema_of(target, schema)).run_within(connection_of(target), "get_job", parameters)
    return _job_view(rows[0]) if rows else None


def _job_view(row: Any) -> JobView:
    fields = {name: getattr(row, name) for name in JobView.model_fields if hasattr(row, name)}
    fields["first_error"] = _error(row.first_error_class, row.first_error_code, row.first_error_message)
    fields["last_error"] = _error(row.last_error_class, row.last_error_code, row.last_error_message)
    fields["failed_because"] = row.failed_because if row.state == JobState.FAILED else None
    fields["run_at"] = _unless_held(row.run_at)
    fields["cancelled_after"] = _cancelled_after(row.cancelled_after)
    fields["owed"] = None
    if row.phase is not None:
        fields["owed"] = OwedView(
            phase=row.phase,
            due_at=_unless_held(row.due_at),
            released_at=row.released_at,
            release_count=row.release_count,
            lease_expires_at=row.lease_expires_at,
            last_error=row.owed_error,
            progress=row.progress,
            needs_key=row.needs_key,
        )
    return JobView(**fields)


def _cancelled_after(text: str | None) -> CancelledAfter | None:
    """Read what had happened by the time of a cancel. Where it can't be read nothing is known: it must hide neither
    the job nor those beside it.
    """
    try:
        return None if text is None else CancelledAfter.model_validate_json(text)
    except ValueError:
        return None


def _unless_held(instant: datetime) -> datetime | None:
    """Return an instant, or None for those that only stand for "not before other jobs have ended" and "set aside"."""
    return None if instant in (HELD, ASIDE) else instant


def _error(error_class: str | None, code: str | None, message: str | None) -> ErrorView | None:
    if error_class is None:
        return None
    return ErrorView(error_class=error_class, code=code or "unknown", message=hidden(message) or "")


def _unsealed(attempt: AttemptView) -> AttemptView:
    """Return the attempt as it is shown to whoever has no keys."""
    shown = {"error_message": hidden(attempt.error_message), "traceback": hidden(attempt.traceback)}
    return attempt.model_copy(update=shown)
