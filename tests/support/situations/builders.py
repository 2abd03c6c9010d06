"""What situations are made of: jobs, outbox rows, and who works here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from outbox.explaining.surroundings import Surroundings
from outbox.operating.pausing import Pause, PauseScope
from outbox_schemas import ErrorView, JobState, JobView, OwedView, Phase, Reason
from outbox_schemas.explanations import AwaitedJob

Situation: TypeAlias = tuple[JobView, Surroundings, str, list[Reason]]
"""A job, what surrounds it, the sentence, and the reasons in their order."""

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(state: JobState | str = JobState.READY, owed: OwedView | None = None, **fields: Any) -> JobView:
    """Return a job in `state`."""
    base = dict.fromkeys(JobView.model_fields) | {
        "id": UUID(int=1),
        "tenant": "default",
        "kind": "k",
        "logical_key": "key",
        "version": 1,
        "queue": "default",
        "priority": 0,
        "attempt_count": 0,
        "budget_start": 0,
        "uncharged_attempts": 0,
        "run_at": NOW,
        "created_at": NOW,
    }
    return JobView(**(base | {"state": state, "owed": owed} | fields))


def owed(
    phase: Phase,
    due_in_s: float | None = 0,
    released_ago_s: float | None = None,
    lease_left_s: float | None = None,
    last_error: str | None = None,
    needs_key: str | None = None,
) -> OwedView:
    """Return an outbox row in `phase`."""
    return OwedView(
        phase=phase,
        due_at=None if due_in_s is None else NOW + timedelta(seconds=due_in_s),
        released_at=None if released_ago_s is None else NOW - timedelta(seconds=released_ago_s),
        release_count=1,
        lease_expires_at=None if lease_left_s is None else NOW + timedelta(seconds=lease_left_s),
        last_error=last_error,
        needs_key=needs_key,
    )


STOPPED = AwaitedJob(
    job_id=UUID("01a22a2c-0000-7000-8000-000000000000"),
    kind="step",
    logical_key="fi-0",
    state=JobState.FAILED,
    stopped=True,
)
STAFFED = Surroundings(NOW, relays=1, consumers=3, able=2)
ALONE = Surroundings(NOW)
FOREIGN = Surroundings(NOW, relays=1, consumers=3)
READY, RUNNING = JobState.READY, JobState.RUNNING
CLOSED = Pause(PauseScope.QUEUE, "default", "ada", "the bank is closed", NOW - timedelta(hours=1))

NOBODY = "a consumer that can run it: none was seen lately that works for queue default and runs k version 1"
NONE_ABLE = "a consumer that can run it: none of the 3 seen lately works for queue default and runs k version 1"


def error(code: str) -> ErrorView:
    """Return an error of that code."""
    return ErrorView(error_class="unknown", code=code, message="a message that may hold anything")
