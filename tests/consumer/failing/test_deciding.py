"""Budgets: which failure ends a job, from numbers alone; and what a handler is told of them."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.leases.budgets import Spent
from outbox.leases.ending import Failure
from outbox_consumer import RetryPolicy, TerminalError
from outbox_consumer.ending.endings import Ending, How, judged
from outbox_consumer.failing.deciding import used_up
from outbox_consumer.failing.retry_budget import budget_of
from outbox_schemas import FailedBecause, HandlerError

POLICY = RetryPolicy(max_unknown=3, max_throttled=4, max_age=timedelta(seconds=100))
CLASSES = ["retryable", "unknown", "throttled"]


@given(st.sampled_from(CLASSES), st.integers(0, 9), st.integers(0, 9), st.floats(0, 200), st.floats(0, 200))
def test_the_budget_that_is_used_up_ends_the_job(
    error_class: str, unknown: int, throttled: int, age_s: float, wait_s: float
) -> None:
    """Unknown failures count against theirs, throttled ones against theirs, and age against all."""
    found = used_up(POLICY, error_class, Spent(unknown, throttled, age_s), wait_s)
    expected = None
    if error_class == "unknown" and unknown >= 2:
        expected = FailedBecause.UNKNOWN_EXHAUSTED
    elif error_class == "throttled" and throttled >= 3:
        expected = FailedBecause.THROTTLED_EXHAUSTED
    elif age_s + wait_s >= 100:
        expected = FailedBecause.AGE_EXHAUSTED
    assert found is expected


def item(how: How = How.RETRY, policy: RetryPolicy = POLICY) -> Ending:
    """Return an ending of an unknown failure."""
    entry: Any = SimpleNamespace(handler=SimpleNamespace(retry=policy))
    return Ending(entry, how, Failure("unknown", "KeyError", "k"), 1.0)


def test_a_verdict_keeps_the_failure_and_says_why() -> None:
    """What was to be tried again fails with its own error; what is not asked stays as it is."""
    last = judged(item(), Spent(unknown=2))
    assert (last.how, last.because, last.failure) == (How.FAIL, FailedBecause.UNKNOWN_EXHAUSTED, item().failure)
    for other in (item(How.FAIL), item(How.SUCCEED), item(How.HAND_BACK)):
        assert judged(other, Spent(unknown=99)) is other
    same = item()
    assert judged(same, Spent()) is same


def test_no_code_of_a_policy_runs_where_endings_are_written() -> None:
    """A subclass whose fields raise is judged by the default policy."""

    class Custom(RetryPolicy):
        @property
        def max_unknown(self) -> int:  # type: ignore[override]
            raise SystemExit

    made = Custom.__new__(Custom)
    assert judged(item(policy=made), Spent(unknown=3)).how is How.RETRY
    assert judged(item(policy=made), Spent(unknown=4)).how is How.FAIL


def claimed(**changes: Any) -> Any:
    """Return as much of a claimed job as a budget needs."""
    return SimpleNamespace(**({"max_attempts": 5, "charged": 2, "deadline_s": None} | changes))


def test_a_handler_is_told_what_is_left() -> None:
    """What further tries there may be of each kind, and for how long."""
    budget = budget_of(claimed(), POLICY, Spent(1, 3, 40.0), 0.0)
    assert (budget.attempts, budget.unknown, budget.throttled) == (3, 1, 0)
    assert (budget.age_s, budget.deadline_s) == (60.0, None)
    assert budget_of(claimed(charged=9), POLICY, Spent(9, 9, 900.0), 0.0).attempts == 0


@pytest.mark.parametrize(("age_s", "deadline_s", "expected"), [(40.0, None, 60), (40.0, 10.0, 10), (0.0, -5.0, 0)])
def test_the_nearer_limit_counts(
    monkeypatch: pytest.MonkeyPatch, age_s: float, deadline_s: float | None, expected: float
) -> None:
    """Time left is up to the deadline or the age, whichever comes first, and never less than nothing."""
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    assert budget_of(claimed(deadline_s=deadline_s), POLICY, Spent(age_s=age_s), 7.0).seconds_left() == expected
    monkeypatch.setattr("time.monotonic", lambda: 9.0)
    later = budget_of(claimed(deadline_s=deadline_s), POLICY, Spent(age_s=age_s), 7.0).seconds_left()
    assert later == max(expected - 2, 0)


@pytest.mark.parametrize(
    "values",
    [
        {"max_unknown": 0},
        {"max_unknown": True},
        {"max_throttled": 10_001},
        {"max_throttled": 1.5},
        {"max_age": timedelta(0)},
        {"max_age": timedelta(days=3651)},
        {"max_age": 5},
    ],
    ids=str,
)
def test_budgets_out_of_bounds_are_refused(values: dict[str, Any]) -> None:
    """A budget that can't work is refused when the policy is made, by its name."""
    with pytest.raises(HandlerError, match=next(iter(values))):
        RetryPolicy(**values)


def test_terminal_errors_have_a_reason_of_their_own() -> None:
    """The names are stable: programs read them."""
    assert {reason.value for reason in FailedBecause} == {
        "terminal",
        "attempts_exhausted",
        "unknown_exhausted",
        "throttled_exhausted",
        "age_exhausted",
        "deadline_exceeded",
    }
    assert TerminalError.default_code == "terminal"
