"""When a failed attempt is tried again: for any count and any policy, within bounds."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_consumer import EffectNotSent, RetryableError, RetryPolicy, TerminalError, ThrottledError
from outbox_consumer.ending.endings import How, ending_for
from outbox_consumer.failing.failures import error_class, least_wait_s
from outbox_schemas import HandlerError

durations = st.timedeltas(timedelta(0), timedelta(days=30))
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 10_000),
    base=durations,
    factor=st.floats(1, 1e300),
    cap=durations,
    patience=durations,
)


@given(policies, st.integers(0, 10**9), st.floats(allow_nan=True, allow_infinity=True))
def test_wait_is_always_within_nothing_and_its_bounds(policy: RetryPolicy, failures: int, at_least: float) -> None:
    """No count, factor or wish makes a wait negative, endless, or longer than the cap and the patience."""
    assert 0 <= policy.wait_s(failures, at_least) <= policy.cap.total_seconds() + policy.patience.total_seconds()
    assert 0 <= policy.wait_s(failures) <= policy.cap.total_seconds()


@pytest.mark.parametrize("failures", [15, 46, 62, 1023, 1024, 100_000])
def test_growth_stops_at_the_cap_without_overflow(failures: int) -> None:
    """Counts at which naive powers overflow end at the cap."""
    assert RetryPolicy(base=timedelta(seconds=5)).longest_wait_s(failures) == 3600.0


def test_growth_is_exponential_and_the_jitter_is_full() -> None:
    """The longest wait doubles per failure, and draws come from its whole range."""
    policy = RetryPolicy(base=timedelta(seconds=2))
    assert [policy.longest_wait_s(count) for count in (1, 2, 3, 4)] == [2, 4, 8, 16]
    draws = [policy.wait_s(4) for _ in range(2000)]
    assert min(draws) < 1
    assert max(draws) > 15
    assert 7 < sum(draws) / len(draws) < 9


def test_base_zero_waits_for_nothing() -> None:
    """A base of 0 is an immediate retry for ever, not an error."""
    assert RetryPolicy(base=timedelta(0)).wait_s(1_000_000) == 0


@given(policies, st.floats(0, 1e6))
def test_throttle_is_a_lower_bound_within_the_patience(policy: RetryPolicy, wish: float) -> None:
    """A throttled wait is no shorter than asked, whatever the cap is, as far as the patience goes."""
    assert policy.wait_s(3, wish) >= min(wish, policy.patience.total_seconds())


def test_jobs_told_to_wait_longer_than_the_cap_return_apart() -> None:
    """A wish above the cap is kept, and what is drawn comes on top."""
    policy = RetryPolicy(base=timedelta(seconds=60), cap=timedelta(seconds=60))
    waits = [policy.wait_s(1, 90) for _ in range(200)]
    assert min(waits) >= 90
    assert max(waits) - min(waits) > 30


BAD: list[dict[str, Any]] = [
    {"max_attempts": 0},
    {"max_attempts": 10_001},
    {"max_attempts": 2.5},
    {"max_attempts": True},
    {"base": timedelta(seconds=-1)},
    {"base": timedelta(days=31)},
    {"cap": timedelta(seconds=-1)},
    {"cap": timedelta(days=31)},
    {"patience": timedelta(days=31)},
    {"patience": 5},
    {"factor": 10**400},
    {"factor": 0.5},
    {"factor": float("inf")},
    {"factor": float("nan")},
]


@pytest.mark.parametrize("values", BAD, ids=str)
def test_bad_values_are_refused_when_the_policy_is_made(values: dict[str, Any]) -> None:
    """A policy that can't work is refused at definition, not when a job fails."""
    with pytest.raises(HandlerError, match=rf"RetryPolicy\.{next(iter(values))} must be .*(, not |it is of type )"):
        RetryPolicy(**values)


def entry(policy: RetryPolicy, charged: int = 1, max_attempts: int = 3) -> Any:
    """Return as much of an entry as a decision needs."""
    claimed = SimpleNamespace(
        charged=charged, attempt=charged, budget_start=0, max_attempts=max_attempts, kind="k", deadline_s=None
    )
    handler = SimpleNamespace(retry=policy, classify=lambda _error: None)
    return SimpleNamespace(claimed=claimed, handler=handler, job=SimpleNamespace(vault=None))


ANSWERS = {
    "raises": lambda: 1 / 0,
    "exits": lambda: (_ for _ in ()).throw(SystemExit),
    "inf": lambda: float("inf"),
    "nan": lambda: float("nan"),
    "negative": lambda: -1.0,
    "beyond the cap": lambda: 1e9,
    "text": lambda: "soon",
    "None": lambda: None,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_policy_that_answers_nonsense_falls_back_to_its_cap(answer: str) -> None:
    """A user's policy that raises or answers out of bounds strands no job: the cap is used."""

    class Custom(RetryPolicy):
        def wait_s(self, *_: Any, **__: Any) -> float:
            return ANSWERS[answer]()  # type: ignore[no-any-return]

    ending = ending_for(entry(Custom(cap=timedelta(seconds=7))), ValueError())
    assert (ending.how, ending.wait_s) == (How.RETRY, 7.0)


def test_policy_whose_limit_fails_falls_back_to_the_jobs_own() -> None:
    """A user's `exhausted` that raises is replaced by the job's maximum of attempts."""

    class Custom(RetryPolicy):
        def exhausted(self, *_: Any, **__: Any) -> bool:
            raise SystemExit

    assert ending_for(entry(Custom(), charged=2), ValueError()).how is How.RETRY
    assert ending_for(entry(Custom(), charged=3), ValueError()).how is How.FAIL


@given(st.integers(1, 100_000), st.integers(1, 10_000))
def test_attempts_are_used_up_exactly_at_their_maximum(charged: int, limit: int) -> None:
    """The last charged attempt ends the job, none before it does; a terminal error always does."""
    expected = How.FAIL if charged >= limit else How.RETRY
    assert ending_for(entry(RetryPolicy(), charged, limit), RetryableError("x")).how is expected
    assert ending_for(entry(RetryPolicy(), charged, limit), TerminalError("x")).how is How.FAIL


def test_jobs_that_were_told_the_same_do_not_return_together() -> None:
    """The jitter comes on top of what a dependency asks for, as far as the patience goes."""
    policy = RetryPolicy(base=timedelta(seconds=8), cap=timedelta(seconds=100), patience=timedelta(seconds=500))
    waits = [policy.wait_s(1, 60) for _ in range(200)]
    assert 60 <= min(waits) < 63
    assert 65 < max(waits) <= 68
    assert 500 <= policy.wait_s(1, 1000) <= 508


@pytest.mark.parametrize("error_type", [ThrottledError, EffectNotSent])
@pytest.mark.parametrize(
    ("wish", "wait_s"),
    [(7, 7.0), (timedelta(seconds=7), 7.0), ("7", 7.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", 0.0)],
)
def test_a_wish_is_a_number_a_duration_or_a_headers_text(error_type: Any, wish: Any, wait_s: float) -> None:
    """Each makes the failure a throttled one; what can't be read asks for no wait, and never raises in its place."""
    error = error_type("busy", retry_after=wish)
    assert (error_class(error), least_wait_s(error)) == ("throttled", wait_s)


def test_without_a_wish_nothing_is_throttled() -> None:
    """What was not sent, and asks for nothing, is an attempt like any other."""
    assert error_class(EffectNotSent("refused")) == "retryable"
    assert error_class(EffectNotSent("refused", retry_after=None)) == "retryable"
    assert least_wait_s(EffectNotSent("refused")) == 0
    assert least_wait_s(ThrottledError("busy", retry_after=None)) == 0


@pytest.mark.parametrize("wish", [-5.0, float("nan"), float("-inf")])
def test_nonsense_wish_of_a_dependency_counts_as_none(wish: float) -> None:
    """A `retry_after` from a broken header neither raises nor makes the wait negative."""
    error = ThrottledError("busy", retry_after=wish)
    ending = ending_for(entry(RetryPolicy(base=timedelta(0))), error)
    assert (ending.how, ending.wait_s) == (How.RETRY, 0.0)
