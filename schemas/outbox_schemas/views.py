"""What a reader is shown of a job and of its attempts. Payloads are not part of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from outbox_schemas.states import JobState, Outcome, Phase

__all__ = ["AttemptView", "ErrorView", "JobRef", "JobView", "OwedView"]


@dataclass(frozen=True, slots=True)
class JobRef:
    """The answer to a submission.

    Attributes:
        id: the job's id, for life.
        created: False if the job was there already; then nothing was written.
        state: the job's state as far as this transaction can tell.
    """

    id: UUID
    created: bool
    state: JobState


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class ErrorView(_View):
    """One error of a job: its class (how it was treated), its stable code, and a bounded message."""

    error_class: str
    code: str
    message: str


class OwedView(_View):
    """The outbox row of a job that has not ended.

    `due_at` is the next instant at which this row wants attention: the hint's due time while owed, the re-hint's
    while released. `progress` is the marker that the running attempt, or the last one, gave with its latest heartbeat.
    """

    phase: Phase
    due_at: datetime
    released_at: datetime | None
    release_count: int
    lease_expires_at: datetime | None
    last_error: str | None
    progress: str | None = None


class AttemptView(_View):
    """One ended attempt. The attempt that is running is told by the job itself."""

    number: int
    worker: str
    host: str
    worker_version: str
    handler_version: str
    hinted_at: datetime | None
    claimed_at: datetime
    ended_at: datetime
    outcome: Outcome
    error_class: str | None
    error_code: str | None
    error_message: str | None
    traceback: str | None


class JobView(_View):
    """A job as the book of record holds it, without its payload.

    `attempt_count` counts every lease ever given; `uncharged_attempts` of them were handed back unstarted and use up
    no retry.
    """

    id: UUID
    tenant: str
    kind: str
    logical_key: str
    version: int
    queue: str
    priority: int
    state: JobState
    run_at: datetime
    deadline_at: datetime | None
    max_attempts: int | None
    attempt_count: int
    uncharged_attempts: int
    lease_owner: str | None
    lease_started_at: datetime | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_reason: str | None
    first_error: ErrorView | None
    last_error: ErrorView | None
    created_at: datetime
    finished_at: datetime | None
    owed: OwedView | None
