"""The job's states, its outbox row's phases, an attempt's outcomes, and the one table of legal moves.

Each SQL statement that moves a job names its move in its header, and a test holds those headers to this table.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from outbox_schemas.errors import NameRefused
from outbox_schemas.names import nature_of

__all__ = [
    "EFFECT_MOVES",
    "ENDED",
    "TRANSITIONS",
    "EffectState",
    "Event",
    "FailedBecause",
    "JobState",
    "Outcome",
    "Phase",
    "Reached",
    "job_state",
    "next_states",
]


class JobState(StrEnum):
    """Where a job stands. A retry that waits is `READY` with a later `run_at`."""

    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def job_state(word: str) -> JobState | str:
    """Return the state of that name, or the word itself if only a newer release knows it."""
    return JobState(word) if word in frozenset(JobState) else word


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class Phase(StrEnum):
    """What is still owed to a job that has not ended."""

    OWED = "owed"
    RELEASED = "released"
    LEASED = "leased"


class Outcome(StrEnum):
    """How an attempt ended; each ended attempt has exactly one."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    FAILED = "failed"
    HANDED_BACK = "handed_back"
    LEASE_LOST = "lease_lost"
    CANCELLED = "cancelled"


class Reached(StrEnum):
    """How far an ended attempt came. Of one whose lease was lost nobody knows."""

    CLAIMED = "claimed"
    STARTED = "started"
    APPLYING = "applying"
    DONE = "done"


class FailedBecause(StrEnum):
    """Why no further try is made of a failed job; its last error says what went wrong."""

    TERMINAL = "terminal"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    UNKNOWN_EXHAUSTED = "unknown_exhausted"
    THROTTLED_EXHAUSTED = "throttled_exhausted"
    AGE_EXHAUSTED = "age_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"


class Event(StrEnum):
    """What moves a job. Nothing else writes its state."""

    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY = "retry"
    FAIL = "fail"
    HAND_BACK = "hand_back"
    LOSE_LEASE = "lose_lease"
    EXPIRE = "expire"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    REDRIVE = "redrive"


class EffectState(StrEnum):
    """Where an external effect stands. `PENDING` and `UNCERTAIN` both mean that it may or may not have happened."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    UNCERTAIN = "uncertain"
    NOT_DONE = "not_done"


EFFECT_MOVES = MappingProxyType(
    {
        EffectState.PENDING: frozenset(EffectState),
        EffectState.UNCERTAIN: frozenset(EffectState),
        EffectState.NOT_DONE: frozenset({EffectState.NOT_DONE, EffectState.PENDING}),
        EffectState.CONFIRMED: frozenset({EffectState.CONFIRMED}),
    }
)
"""Where each state of an effect may lead. A confirmed one stays so; the database refuses anything else."""


TRANSITIONS = MappingProxyType(
    {
        (JobState.READY, Event.CLAIM): frozenset({JobState.RUNNING}),
        (JobState.READY, Event.EXPIRE): frozenset({JobState.FAILED}),
        (JobState.READY, Event.CANCEL): frozenset({JobState.CANCELLED}),
        (JobState.READY, Event.SUPERSEDE): frozenset({JobState.CANCELLED}),
        (JobState.RUNNING, Event.COMPLETE): frozenset({JobState.SUCCEEDED}),
        (JobState.RUNNING, Event.RETRY): frozenset({JobState.READY, JobState.FAILED}),
        (JobState.RUNNING, Event.FAIL): frozenset({JobState.FAILED}),
        (JobState.RUNNING, Event.HAND_BACK): frozenset({JobState.READY}),
        (JobState.RUNNING, Event.LOSE_LEASE): frozenset({JobState.READY, JobState.FAILED}),
        (JobState.RUNNING, Event.CANCEL): frozenset({JobState.CANCELLED}),
        (JobState.FAILED, Event.REDRIVE): frozenset({JobState.READY}),
        (JobState.CANCELLED, Event.REDRIVE): frozenset({JobState.READY}),
    }
)


def next_states(state: JobState, event: Event) -> frozenset[JobState]:
    """Return the states that `event` may lead to from `state`; empty where the move is not legal.

    Raises `NameRefused` for what is no text.
    """
    for field, value in (("state", state), ("event", event)):
        if not isinstance(value, str):
            raise NameRefused(field, f"must be a {'JobState' if field == 'state' else 'Event'}, not {nature_of(value)}")
    return TRANSITIONS.get((state, event), frozenset())
