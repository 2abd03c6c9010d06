"""What a reader is shown of a job and of its attempts. Payloads are not part of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from outbox_schemas.states import EffectState, JobState, Outcome, Phase

__all__ = [
    "AttemptView",
    "CancelResult",
    "CancelledAfter",
    "EffectView",
    "ErrorView",
    "JobRef",
    "JobView",
    "OwedView",
    "RefusalView",
    "TreeView",
]

_Word = TypeVar("_Word", JobState, Phase, Outcome, EffectState)

# A word of the tables. One that only a newer release knows is shown as it stands, and means nothing here.
OrNewer = Annotated[_Word | str, Field(union_mode="left_to_right")]


@dataclass(frozen=True, slots=True)
class JobRef:
    """The answer to a submission.

    Attributes:
        id: the job's id, for life.
        created: False if the job was there already; then nothing was written.
        state: the job's state as far as this transaction can tell; a plain text if only a newer release knows it.
        replaced: True if the job waited, and has got this call's arguments or time (`replace`).
        superseded: the waiting jobs that were ended, since this one has come in their place (`supersedes`).
    """

    id: UUID
    created: bool
    state: JobState | str
    replaced: bool = False
    superseded: tuple[UUID, ...] = ()


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
    while released; None while the job waits for a set of others to end, or is set aside for a pause. `progress` is the
    marker that the running attempt, or the last one, gave with its latest heartbeat. `needs_key` names the key that a
    worker lacked which was to open a sealed payload.
    """

    phase: OrNewer[Phase]
    due_at: datetime | None
    released_at: datetime | None
    release_count: int
    lease_expires_at: datetime | None
    last_error: str | None
    progress: str | None = None
    needs_key: str | None = None


class AttemptView(_View):
    """One ended attempt. The attempt that is running is told by the job itself.

    `reached` is a `Reached` and `failed_because` a `FailedBecause`, as text: a newer release may know more of them. The
    first is None where nobody could tell, the second unless the job failed with this attempt.
    """

    number: int
    worker: str
    host: str
    worker_version: str
    handler_version: str
    hinted_at: datetime | None
    claimed_at: datetime
    started_at: datetime | None = None
    ended_at: datetime
    reached: str | None = None
    outcome: OrNewer[Outcome]
    failed_because: str | None = None
    error_class: str | None
    error_code: str | None
    error_message: str | None
    traceback: str | None
    effects_touched: tuple[str, ...] | None = None
    progress: str | None = None


class RefusalView(_View):
    """A write that came after its attempt had lost the lease: the fence refused it. `what` is what was wanted."""

    attempt: int
    at: datetime
    what: str
    worker: str


class CancelledAfter(_View):
    """What had happened already when a job was cancelled: none of it is undone by the cancel.

    Attributes:
        attempts: how many had begun, one that the cancel interrupted included.
        checkpoints: the names of those that were saved.
        effects: the names of the effects by their state then: `confirmed` has happened; `pending` and `uncertain` may
            have.
        superseded_by: the newer job that has come in its place; None where a person or the code has cancelled it.

    Names are the first hundred of each kind.
    """

    attempts: int
    checkpoints: tuple[str, ...] = ()
    effects: dict[str, tuple[str, ...]] = {}
    superseded_by: UUID | None = None

    @property
    def sentence(self) -> str:
        """The same in a sentence for people."""
        if not (self.attempts or self.checkpoints or self.effects):
            return "nothing had started"
        parts = [f"{self.attempts} attempt{'' if self.attempts == 1 else 's'} had begun"]
        if self.checkpoints:
            parts.append(f"checkpoints: {', '.join(self.checkpoints)}")
        parts += [f"effects {state}: {', '.join(names)}" for state, names in sorted(self.effects.items())]
        return "; ".join(parts)


class EffectView(_View):
    """One external effect of a job, without its stored result.

    Attributes:
        provider_key: what the other side was given as the idempotency key.
        attempt: the attempt that touched it last; `sends` counts how often sending it was begun.
        settled_by: how it was confirmed: `send`, `reconcile`, `policy` (assumed) or `person`.
        result_note: why a confirmed effect has no stored result; None where it has one, or needs none.
    """

    job_id: UUID
    name: str
    state: OrNewer[EffectState]
    provider_key: UUID
    attempt: int
    sends: int
    remote_request_id: str | None
    settled_by: str | None
    result_note: str | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime | None
    confirmed_at: datetime | None
    job_state: OrNewer[JobState]
    kind: str
    logical_key: str
    tenant: str


class JobView(_View):
    """A job as the book of record holds it, without its payload.

    `attempt_count` counts every lease ever given; `uncharged_attempts` of them were handed back unstarted or throttled
    and use up no retry, nor do those before the last redrive, whose numbers go up to `budget_start`. `failed_because`
    is a `FailedBecause` as text: why a failed job is not tried again. `state` is a plain text where a newer release has
    written one that this release doesn't know; the same holds for the words of its outbox row, attempts and effects.
    `subject` is what its payload's `subject_key` has named, `limit_key` what its `limit_key` has, with its terms:
    `limit_place` is not None where jobs run in the order of their submission, and grows with it.
    `run_at` is None while the job waits for a set of others to end (`fan_in`), and where it ended before they had.
    """

    id: UUID
    tenant: str
    kind: str
    logical_key: str
    version: int
    queue: str
    priority: int
    state: OrNewer[JobState]
    run_at: datetime | None
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
    budget_start: int = 0
    failed_because: str | None = None
    created_at: datetime
    finished_at: datetime | None
    payload_erased_at: datetime | None
    correlation_id: str | None = None
    parent_id: UUID | None = None
    cancelled_after: CancelledAfter | None = None
    subject: str | None = None
    limit_group: str | None = None
    limit_key: str | None = None
    limit_max: int | None = None
    limit_place: int | None = None
    limit_blocks: bool | None = None
    owed: OwedView | None


class CancelResult(JobView):
    """A job after a cancel, and whether that very call ended it.

    `won` is False where the job had ended before, however it had: `state` says how, and for a cancelled one
    `cancel_requested_by` says whose cancel it was.
    """

    won: bool


class TreeView(_View):
    """One job of a workflow. `level` counts from the job that the workflow began with.

    A job that waits for a set of others has `waits_until` ("succeeded" or "ended"), the number of them in `waits_for`,
    that of those who have not ended as asked in `waits_left` (1000: so many or more), and in `waited_until` when the
    wait was over.
    """

    level: int
    id: UUID
    parent_id: UUID | None
    correlation_id: str | None
    tenant: str
    kind: str
    logical_key: str
    state: OrNewer[JobState]
    attempt_count: int
    created_at: datetime
    finished_at: datetime | None
    last_error_code: str | None
    waits_until: str | None
    waits_for: int | None
    waited_until: datetime | None
    waits_left: int | None = None
