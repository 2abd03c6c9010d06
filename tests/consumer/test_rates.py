"""How many jobs a consumer says that it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_consumer.holding.rates import EndRates


class Clock:
    """A clock that a test drives."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return its time."""
        return self.now


def test_rates_are_by_queue_and_over_the_time_since_the_last() -> None:
    """The first is what was measured; later ones count for half beside the one before, where chance explains them."""
    clock = Clock()
    ends = EndRates(clock)
    ends.add(["a"] * 20 + ["b"] * 9)
    clock.now += 10
    assert ends.per_s() == {"a": 2.0, "b": 0.9}
    ends.add(["a"] * 30)
    clock.now += 10
    assert ends.per_s() == {"a": 2.5, "b": 0.45}


@pytest.mark.parametrize(("before", "after"), [(1000, 100), (100, 1000), (100, 0), (0, 100), (40, 80)])
def test_a_rate_that_has_changed_is_told_at_once(before: int, after: int) -> None:
    """What was measured last counts alone then: a drain time must not rest on the pace of before."""
    clock = Clock()
    ends = EndRates(clock)
    for count in (before, before, before, after):
        ends.add(["q"] * count)
        clock.now += 10
        told = ends.per_s()
    assert told.get("q", 0.0) == after / 10


def test_an_idle_queue_is_forgotten() -> None:
    """Its rate halves each time, and is gone once it says nothing any more."""
    clock = Clock()
    ends = EndRates(clock)
    ends.add(["a"])
    for _ in range(20):
        clock.now += 10
        last = ends.per_s()
    assert last == {}


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.1, 60)), min_size=1, max_size=20))
def test_a_rate_lies_within_what_was_measured(turns: list[tuple[int, float]]) -> None:
    """Whatever comes in whatever time, no rate is above the fastest stretch."""
    clock = Clock()
    ends = EndRates(clock)
    for count, passed_s in turns:
        ends.add(["q"] * count)
        clock.now += passed_s
        rate = ends.per_s().get("q", 0.0)
        assert 0 <= rate <= max(some / s for some, s in turns) * (1 + 1e-6)


def test_two_looks_at_one_moment_divide_by_no_zero() -> None:
    """A look that comes at once after another has a rate, too."""
    ends = EndRates(Clock())
    ends.add(["q"])
    assert ends.per_s()["q"] == pytest.approx(1000)
