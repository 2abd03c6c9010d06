"""The operator's and the user's way to end a job that has not ended."""

from __future__ import annotations

from uuid import UUID

from outbox.reading import get_job
from outbox.statements import statements_for
from outbox.writer import Target, connection_of, schema_of
from outbox_schemas import JobNotFound, JobView, NameRefused

__all__ = ["cancel", "check_actor"]

_ACTOR_CHARACTERS = 200
_REASON_CHARACTERS = 2000


def cancel(target: Target, job_id: UUID, *, by: str, reason: str, schema: str | None = None) -> JobView:
    """Cancel a job in the caller's transaction and return it as it then stands.

    A job that waits never runs. One that runs loses its lease with this commit: its worker is told at its next
    heartbeat or check, and what it has not committed by then is refused. If the completion commits first, the job
    has succeeded and stays so: look at the returned `state`. Cancelling an ended job changes nothing. Who and why
    are audited in the same transaction.

    Raises:
        JobNotFound: no job has this id.
        NameRefused: `by` or `reason` is empty, unprintable or too long.
    """
    check_actor(by, reason)
    connection = connection_of(target)
    statements = statements_for(schema_of(target, schema))
    statements.run_within(connection, "cancel", {"job_id": job_id, "actor": by, "reason": reason})
    view = get_job(target, job_id, schema=schema)
    if view is None:
        raise JobNotFound(job_id)
    return view


def check_actor(by: str, reason: str, **more: str) -> None:
    """Raise `NameRefused` unless who, why, and whatever else a person tells are printable texts within their bounds."""
    _check("by", by, _ACTOR_CHARACTERS)
    for field, text in {"reason": reason, **more}.items():
        _check(field, text, _REASON_CHARACTERS)


def _check(field: str, value: str, limit: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= limit or not value.isprintable():
        raise NameRefused(field, f"must be printable text of 1 to {limit} characters")
