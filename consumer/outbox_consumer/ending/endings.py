"""What follows an attempt: which end it has, and what is written for it. Pure but for the jitter."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from outbox.leases.budgets import Spent
from outbox.leases.ending import Failure, Unstarted
from outbox_consumer.basis.errors import RetryableError
from outbox_consumer.contract.classifying import meaning_of
from outbox_consumer.contract.sealed import sealed_failure
from outbox_consumer.failing.deciding import used_up
from outbox_consumer.failing.failures import TERMINAL, THROTTLED, failure_of, least_wait_s
from outbox_consumer.failing.retry import plain
from outbox_consumer.holding.book import Entry
from outbox_schemas import FailedBecause, Outcome

__all__ = [
    "COUNTERS",
    "ENDED",
    "EXPECTED",
    "OUTCOMES",
    "Ending",
    "How",
    "code_of",
    "ending_for",
    "in_rounds",
    "judged",
    "overrun_ending",
    "overrun_reason",
]

log = logging.getLogger("outbox.consumer")


class How(StrEnum):
    """The ways in which this process ends an attempt."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    HAND_BACK = "hand_back"
    PARK = "park"


OUTCOMES = {
    How.SUCCEED: frozenset({Outcome.SUCCEEDED}),
    How.RETRY: frozenset({Outcome.RETRIED, Outcome.FAILED}),
    How.FAIL: frozenset({Outcome.FAILED}),
    How.HAND_BACK: frozenset({Outcome.HANDED_BACK}),
    How.PARK: frozenset({Outcome.HANDED_BACK}),
}
"""What the history may show for each: a try that was to follow may be one too many, or come too late."""

COUNTERS = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.RETRIED: "retried",
    Outcome.FAILED: "failed",
    Outcome.HANDED_BACK: "handed_back",
}
"""Under which name each outcome is counted."""

ENDED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED})
"""Outcomes after which nothing more of the job is to be done."""


EXPECTED = {
    How.SUCCEED: Outcome.SUCCEEDED,
    How.RETRY: Outcome.RETRIED,
    How.FAIL: Outcome.FAILED,
    How.HAND_BACK: Outcome.HANDED_BACK,
    How.PARK: Outcome.HANDED_BACK,
}
"""The outcome that each way leads to, unless the job's history or its deadline says otherwise."""


@dataclass(slots=True, eq=False)
class Ending:
    """What is to be written for one attempt. Never changed (and not frozen, which would make each one dearer)."""

    entry: Entry
    how: How
    failure: Failure | None = None
    wait_s: float = 0.0
    key_id: str = ""  # the key that a parked job waits for
    because: FailedBecause | None = None
    unstarted: Unstarted | None = None  # why work is handed back

    @property
    def throttled(self) -> bool:
        """Whether the other side asked for a pause: that charges no attempt."""
        return self.failure is not None and self.failure.error_class == THROTTLED


def code_of(item: Ending) -> str:
    """Return the code of a failure, or why else the job fails; `none` where nothing says."""
    return item.failure.code if item.failure is not None else str(item.because or "none")


def ending_for(entry: Entry, error: BaseException) -> Ending:
    """Decide what follows a failed attempt, as far as that needs no look into the job's history: another try after a
    wait, or the job's end. Never raises.

    A retry policy that can't be evaluated (a subclass that raises, or answers nonsense) falls back to what its own
    fields say: the job's maximum of attempts, and the cap as the wait.
    """
    meaning = meaning_of(entry.handler, error, sealed=entry.job.vault is not None)
    failure = sealed_failure(entry.job, failure_of(error, meaning))
    if failure.error_class == TERMINAL:
        return Ending(entry, How.FAIL, failure, because=FailedBecause.TERMINAL)
    if failure.error_class != THROTTLED and _exhausted(entry):
        return Ending(entry, How.FAIL, failure, because=FailedBecause.ATTEMPTS_EXHAUSTED)
    return Ending(entry, How.RETRY, failure, _wait_s(entry, failure.error_class, least_wait_s(meaning)))


def judged(item: Ending, spent: Spent) -> Ending:
    """Decide the rest, by what the job's history says and the fields of the policy alone: this runs on a thread that
    every ending of the process depends on, so no subclass's code may.
    """
    if item.how is not How.RETRY or item.failure is None:
        return item
    because = used_up(plain(item.entry.handler.retry), item.failure.error_class, spent, item.wait_s)
    return item if because is None else Ending(item.entry, How.FAIL, item.failure, because=because)


def overrun_ending(entry: Entry, reason: str, code: str) -> Ending:
    """Decide what follows an attempt that ran too long or came to a standstill, by the fields of its policy alone: this
    runs on a thread that every lease of the process depends on, so no subclass's code may.
    """
    policy = plain(entry.handler.retry)
    failure = failure_of(RetryableError(reason, code=code))
    charged = entry.claimed.charged
    if policy.exhausted(charged, entry.claimed.max_attempts):
        return Ending(entry, How.FAIL, failure, because=FailedBecause.ATTEMPTS_EXHAUSTED)
    return Ending(entry, How.RETRY, failure, policy.wait_s(charged))


def overrun_reason(entry: Entry, now: float) -> tuple[str, str]:
    """Return why the watch ends an attempt, for people and as a code."""
    if entry.overruns(now):
        limit = entry.handler.max_runtime
        return f"the attempt ran longer than the handler's max_runtime ({limit})", "max_runtime_exceeded"
    marker = entry.job.marker[0]
    said = "there was no marker" if marker is None else f"the last marker was {marker!r}"
    if entry.is_discreet:
        said = "its markers are not told, as the payload holds what is sensitive or sealed"
    limit_s = entry.handler.progress_deadline
    return f"no progress within the handler's progress_deadline ({limit_s}); {said}", "progress_stalled"


def _exhausted(entry: Entry) -> bool:
    charged, limit = entry.claimed.charged, entry.claimed.max_attempts
    try:
        return bool(entry.handler.retry.exhausted(charged, limit))
    except BaseException:  # noqa: BLE001 - a policy may be a user's subclass; its SystemExit ends nothing here
        _complain(entry)
        return charged >= limit


def _wait_s(entry: Entry, error_class: str, at_least_s: float) -> float:
    cap_s = entry.handler.retry.cap.total_seconds()
    claimed = entry.claimed
    # A throttled attempt is not charged, and yet each one makes the next wait longer.
    failures = claimed.attempt - claimed.budget_start if error_class == THROTTLED else claimed.charged
    try:
        wait_s = float(entry.handler.retry.wait_s(failures, at_least_s))
    except BaseException:  # noqa: BLE001 - as above
        _complain(entry)
        return cap_s
    if 0 <= wait_s <= cap_s + min(at_least_s, entry.handler.retry.patience.total_seconds()):
        return wait_s
    log.error("a retry policy answered out of bounds; its cap is used", extra={"kind": entry.claimed.kind})
    return cap_s


def _complain(entry: Entry) -> None:
    # Its traceback would go on to the handler's error, whose text a sealed job keeps to itself.
    traceback = entry.job.vault is None
    log.error("a retry policy failed; its fields are used", extra={"kind": entry.claimed.kind}, exc_info=traceback)


def in_rounds(endings: list[Ending]) -> list[list[Ending]]:
    """Part endings so that none holds a job twice: answers name jobs, and a lost and a current lease may share one."""
    if len({item.entry.claimed.lease.job_id for item in endings}) == len(endings):
        return [endings] if endings else []
    rounds: list[dict[UUID, Ending]] = []
    for item in endings:
        job_id = item.entry.lease.job_id
        free = next((round_ for round_ in rounds if job_id not in round_), None)
        if free is None:
            rounds.append(free := {})
        free[job_id] = item
    return [list(round_.values()) for round_ in rounds]
