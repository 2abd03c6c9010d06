"""What the model of an installation knows of one job, and what all of its moves go by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from outbox.leases.ending import Failure
from outbox_schemas import TRANSITIONS, Event, JobState
from support.jobs import ABILITIES, BROKEN, Note

REHINT_S = 10
MAX_AGE_S = 100
# Each holds every job of the model.
SCOPES = {"everything": "", "queue": Note.queue, "kind": Note.kind, "tenant": "default"}
# When what is set aside is due, as the model has it.
AWAY = 1e9
ABLE = [replace(ability, max_age_s=MAX_AGE_S) for ability in ABILITIES]
FAILURES = [BROKEN, *(Failure(name, f"a.{name}", "no") for name in ("retryable", "terminal", "throttled"))]


@dataclass(frozen=True)
class Expected:
    """What the model knows of one job; times are seconds of the driven clock."""

    state: JobState = JobState.READY
    phase: str | None = "owed"
    run_at: float = 0
    due: float = 0
    deadline: float | None = None
    limit: int | None = None
    attempts: int = 0
    uncharged: int = 0
    began: float | None = None
    because: str | None = None
    releases: int = 0
    token: UUID | None = None
    expires: float = 0
    key: str = ""
    about: str | None = None

    def moved(self, event: Event, state: JobState, **changes: Any) -> Expected:
        """Return the job after an event; an illegal move fails the model itself."""
        assert state in TRANSITIONS[self.state, event]
        ended = state not in (JobState.READY, JobState.RUNNING)
        return replace(self, state=state, token=None, **({"phase": None if ended else "owed"} | changes))

    def retried(self, now: float, delay: float, failure: Failure) -> Expected:
        """Return the job after an attempt that another was to follow."""
        at = now + delay
        if self.deadline is not None and at >= self.deadline:
            return self.moved(Event.RETRY, JobState.FAILED, because="deadline_exceeded")
        free = failure.error_class == "throttled"
        return self.moved(Event.RETRY, JobState.READY, run_at=at, due=at, uncharged=self.uncharged + free)

    def lost(self, now: float) -> Expected:
        """Return the job after its lease has expired."""
        because = None
        if self.attempts - self.uncharged >= (self.limit or 1):
            because = "attempts_exhausted"
        elif self.began is not None and now - self.began >= MAX_AGE_S:
            because = "age_exhausted"
        elif self.deadline is not None and now >= self.deadline:
            because = "deadline_exceeded"
        if because is not None:
            return self.moved(Event.LOSE_LEASE, JobState.FAILED, because=because)
        return self.moved(Event.LOSE_LEASE, JobState.READY, due=now)
