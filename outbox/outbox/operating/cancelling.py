"""The operator's and the user's way to end a job that has not ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, refusing_at_once, schema_of, writable
from outbox.processes.barriers import Barrier, hit
from outbox.reading.jobs import get_job
from outbox.submitting.side_lookup import beside
from outbox.texts.actors import check_actor
from outbox_schemas import CancelResult, JobNotFound, JobView
from outbox_schemas.names import check_id

__all__ = ["cancel", "cancel_async", "end_held"]

_FRESH = "read committed"
# Of a job that redrives keep putting back, the caller is told so in the end.
_TRIES = 3


def cancel(target: Target, job_id: UUID, *, by: str, reason: str, schema: str | None = None) -> CancelResult:
    """Cancel a job in the caller's transaction and return it as it then stands.

    A job that waits never runs. One that runs loses its lease with this commit: its worker is told at its next
    heartbeat or check, and what it has not committed by then is refused. If the completion commits first, the job
    has succeeded and stays so. Cancelling an ended job changes nothing. The answer's `won` says whether this call
    ended the job, `state` how it has ended, and `cancelled_after` what had happened by then: attempts, checkpoints,
    effects. Who and why are audited in the same transaction.

    Raises:
        JobNotFound: no job has this id.
        NameRefused: `job_id` is not a UUID, or `by` or `reason` is empty, unprintable or too long; no SQL ran.
    """
    check_id("job_id", job_id)
    check_actor(by, reason)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    for _ in range(_TRIES):
        won = _end_one(connection, statements, job_id, by, reason)
        view = get_job(target, job_id, schema=schema)
        if view is None:
            raise JobNotFound(job_id)
        # One that had ended when it was to be held, and is at work again: a redrive came in between, and comes first.
        if won or view.owed is None:
            break
    return CancelResult(**{name: getattr(view, name) for name in JobView.model_fields}, won=won)


def _end_one(connection: sa.Connection, statements: Statements, job_id: UUID, by: str, reason: str) -> bool:
    """Cancel a job that has not ended, and tell whether this call has."""
    held = statements.run_within(connection, "hold_job", {"job_id": job_id})
    if not held:
        return False
    hit(Barrier.CANCEL_AFTER_HOLD)
    # A snapshot that is older than the lock doesn't show what was waited for.
    fresh = held[0].isolation == _FRESH
    after = None if fresh else _traces_beside(connection, statements, job_id)
    return bool(end_held(connection, statements, {job_id: after}, by=by, reason=reason))


@refusing_at_once
async def cancel_async(
    target: AsyncTarget, job_id: UUID, *, by: str, reason: str, schema: str | None = None
) -> CancelResult:
    """`cancel` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "cancel_async").run_sync(
        lambda inner: cancel(inner, job_id, by=by, reason=reason, schema=schema)
    )


def end_held(
    connection: sa.Connection,
    statements: Statements,
    jobs: Mapping[UUID, str | None],
    *,
    by: str,
    reason: str,
    detail: Mapping[str, object] | None = None,
) -> list[UUID]:
    """Cancel jobs whose outbox rows this transaction holds already; return those that were not ended.

    Args:
        jobs: for each the text of `read_traces.sql`, or None where this transaction's next snapshot is a fresh one.
        detail: what the audit keeps besides.
    """
    asked = [{"job_id": str(job_id), "after": after and json.loads(after)} for job_id, after in jobs.items()]
    parameters = {"jobs": json.dumps(asked), "actor": by, "reason": reason, "detail": json.dumps(detail or {})}
    ended = [UUID(str(row.job_id)) for row in statements.run_within(connection, "cancel", parameters)]
    hit(Barrier.CANCEL_AFTER_END)
    return ended


def _traces_beside(connection: sa.Connection, statements: Statements, job_id: UUID) -> str | None:
    with beside(connection.engine).connect() as aside:
        rows = statements.run_within(aside, "read_traces", {"job_id": job_id})
    return str(rows[0].traces) if rows else None
