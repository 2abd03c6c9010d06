"""Why a job doesn't run: the reasons by their stable codes, and the answer that is made of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from outbox_schemas.states import JobState
from outbox_schemas.views import OrNewer

__all__ = ["AwaitedJob", "AwaitedSet", "Explanation", "Finding", "Reason"]


class Reason(StrEnum):
    """What a job waits for, or why it waits for nothing any more. New ones may be added."""

    NOT_DUE = "not_due"
    RETRY_WAITS = "retry_waits"
    JOBS_AWAITED = "jobs_awaited"
    SET_UNMET = "set_unmet"
    PAUSED = "paused"
    ROW_HELD = "row_held"
    QUEUE_LIMIT = "queue_limit"
    TENANT_LIMIT = "tenant_limit"
    RATE_LIMIT = "rate_limit"
    KEY_LIMIT = "key_limit"
    KEY_ORDER = "key_order"
    KEY_TURN = "key_turn"
    KEY_BLOCKED = "key_blocked"
    DEADLINE_PASSED = "deadline_passed"
    DEADLINE_NEARS = "deadline_nears"
    NO_CONSUMER = "no_consumer"
    NO_RELAY = "no_relay"
    KIND_UNSUPPORTED = "kind_unsupported"
    KEY_UNKNOWN = "key_unknown"
    HINT_OWED = "hint_owed"
    HINT_REFUSED = "hint_refused"
    HINT_RELEASED = "hint_released"
    HINT_LOST = "hint_lost"
    RUNNING = "running"
    LEASE_EXPIRED = "lease_expired"
    CANCEL_REQUESTED = "cancel_requested"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    DISCARDED = "discarded"
    EFFECT_ON_HOLD = "effect_on_hold"
    REDRIVE_WAITS = "redrive_waits"
    NOTHING_OWED = "nothing_owed"
    PHASE_MISMATCH = "phase_mismatch"
    STATE_UNKNOWN = "state_unknown"


class Finding(BaseModel):
    """One reason.

    Attributes:
        code: the reason, for programs.
        text: the reason as a sentence, for people: what the job waits for.
        since: since when it holds, where that is known.
        until: when it ends by itself; None where it doesn't, or nobody can know.
        unblocked_by: what ends it.
    """

    model_config = ConfigDict(frozen=True)

    code: Reason
    text: str
    since: datetime | None = None
    until: datetime | None = None
    unblocked_by: str


class AwaitedJob(BaseModel):
    """A job that another one waits for. `kind`, `logical_key` and `state` are None if it is no longer there.

    `stopped`: it has ended otherwise than was asked for, so that only a redrive of it lets the other one start.
    """

    model_config = ConfigDict(frozen=True)

    job_id: UUID
    kind: str | None
    logical_key: str | None
    state: OrNewer[JobState] | None
    stopped: bool


class AwaitedSet(BaseModel):
    """What a job of `fan_in` waits for.

    Attributes:
        until: "succeeded" or "ended": what each of them must have done.
        members: how many jobs the set has.
        left: those that have not ended as asked; 1000 stands for so many or more.
        stopped: how many of these `left` have failed, or were cancelled, though they had to succeed.
        shown: up to twenty of these, the stopped ones first.
        stopped_at: when the first of those `stopped` ended, as far as they are on record.
    """

    model_config = ConfigDict(frozen=True)

    until: str
    members: int
    left: int
    stopped: int
    shown: tuple[AwaitedJob, ...]
    stopped_at: datetime | None = None


class Explanation(Finding):
    """Why a job doesn't run: the reason that counts, and in `also` what else stands in the way, in order.

    Attributes:
        job_id: the job.
        state: the job's state at that moment, as in `JobView`.
        at: that moment, by the database's clock.
        awaited: the set of jobs that it waits for, if it does.
    """

    job_id: UUID
    state: OrNewer[JobState]
    at: datetime
    also: tuple[Finding, ...] = ()
    awaited: AwaitedSet | None = None
