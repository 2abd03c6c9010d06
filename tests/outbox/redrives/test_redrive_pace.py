"""The pace of a redrive and what stops it, as pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import NameRefused, StopOn
from outbox.redrives.pace import Lane, Progress, grants, pause_s, stop_reason

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    """Return a span."""
    return timedelta(seconds=count)


@pytest.mark.parametrize(
    ("rate", "free_s", "waiting", "room", "count", "next_s"),
    [
        (10, 0, 100, 100, 1, 0.1),
        (10, -0.25, 100, 100, 3, 0.05),
        (10, -60, 100, 100, 10, 0.0),
        (10, -60, 4, 100, 4, -0.6),
        (10, -60, 100, 5, 5, -0.5),
        (10, 0.05, 100, 100, None, None),
        (0.1, -60, 100, 100, 1, 9.0),
        (1000, -1, 5000, 300, 300, -0.7),
    ],
)
def test_a_lane_goes_at_its_rate(
    rate: float, free_s: float, waiting: int, room: int, count: int | None, next_s: float | None
) -> None:
    """One at a time, catching up by a second's worth at most, within what waits and what there is room for."""
    granted = grants([Lane("k", "t", waiting, NOW + seconds(free_s))], NOW, rate, room)
    if count is None:
        assert granted == []
        return
    assert (granted[0].count, round((granted[0].free_at - NOW).total_seconds(), 3)) == (count, next_s)


def test_no_lane_takes_the_room_of_the_others() -> None:
    """The room is shared, and what one leaves over goes to the next."""
    lanes = [Lane("k", "big", 1000, NOW - seconds(9)), Lane("k", "small", 2, NOW - seconds(9)), Lane("k", "t", 50, NOW)]
    assert [grant.count for grant in grants(lanes, NOW, 1000, 90)] == [30, 2, 1]


@given(
    rate=st.floats(0.01, 1000),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=40),
    room=st.integers(0, 500),
)
def test_over_any_time_a_lane_keeps_its_rate(rate: float, steps: list[float], room: int) -> None:
    """However its turns fall, no more than the rate times the time goes, plus one second's worth and one."""
    now, free_at, gone = NOW, NOW, 0
    for step in steps:
        now += seconds(step)
        for grant in grants([Lane("k", "t", 10**6, free_at)], now, rate, room):
            gone += grant.count
            free_at = grant.free_at
    assert gone <= rate * ((now - NOW).total_seconds() + 1) + 2


def progress(canary: int = 0, canaries_open: int = 0, as_before: int = 0, good: int = 0, bad: int = 0) -> Progress:
    """Return a progress."""
    return Progress(canary, canaries_open, as_before, good, bad)


@pytest.mark.parametrize(
    ("at", "stops"),
    [
        (progress(), False),
        (progress(canary=2, canaries_open=1, as_before=1, bad=1), True),
        (progress(bad=9), False),
        (progress(bad=10), True),
        (progress(good=5, bad=5), False),
        (progress(good=4, bad=6), True),
        (progress(canary=3, canaries_open=1, good=0, bad=2), False),
        (progress(canary=3, good=1, bad=2), True),
    ],
)
def test_what_stops_it(at: Progress, stops: bool) -> None:
    """A canary that fails as before, at once; too many failures, once enough have ended or all canaries have."""
    assert (stop_reason(at, same_code=True, failure_ratio=0.5, at_least=10) is not None) is stops
    assert stop_reason(at, same_code=False, failure_ratio=None, at_least=10) is None


def test_it_rests_until_a_lane_is_free_and_longer_where_it_only_waits() -> None:
    """Never a hot loop, and never longer than a quarter of a minute."""
    assert pause_s([NOW + seconds(3), NOW + seconds(7)], NOW, 0) == 3
    assert pause_s([NOW - seconds(3)], NOW, 0) == pause_s([], NOW, 0) == 0.2
    assert [pause_s([], NOW, turns) for turns in (1, 2, 3, 4, 5, 100)] == [1, 2, 4, 8, 15, 15]
    assert pause_s([NOW + seconds(900)], NOW, 0) == 15


@pytest.mark.parametrize("bad", [{"failure_ratio": 1.5}, {"failure_ratio": True}, {"at_least": 0}, {"at_least": "x"}])
def test_impossible_limits_are_refused(bad: dict[str, object]) -> None:
    """The error names the field."""
    with pytest.raises(NameRefused, match=next(iter(bad))):
        StopOn(**bad)  # type: ignore[arg-type]
