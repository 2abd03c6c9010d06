"""How fast consumers take hints, as a relay sees it: what went out of sight in another way is no sign of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.pacing import refill_at
from outbox_relay.taking import RECENT_S, Taking

from .test_polling import Clock


def sent(taking: Taking, count: int) -> None:
    """Have so many sent and confirmed."""
    taking.sent(count)
    taking.answered(count, confirmed=True)


@pytest.mark.parametrize("rate", [100, 20_000])
def test_taking_tells_when_there_will_be_room(rate: int) -> None:
    """After a few looks at hints that are taken evenly, it knows the rate and when half of a runway will be free."""
    clock = Clock()
    taking, out = Taking(clock), 2000
    sent(taking, out)
    taking.seen(out)
    assert taking.wait_s(refill_at(2000)) == 0, "nothing is known yet"
    for _ in range(50):
        clock.now += 0.01
        taking.seen(out - rate // 100)
        sent(taking, rate // 100)
    assert taking.rate == pytest.approx(rate, rel=0.01)
    assert taking.wait_s(refill_at(2000)) == pytest.approx(1000 / rate, rel=0.01)
    assert taking.wait_s(2000) == 0


def test_taking_forgets_a_rate_that_has_ended() -> None:
    """When nothing is taken any more it soon says that nobody knows."""
    clock = Clock()
    taking = Taking(clock)
    sent(taking, 2000)
    for out in (2000, 1000, 1000):
        clock.now += 0.05
        taking.seen(out)
    assert taking.rate > 1000
    for _ in range(50):
        clock.now += 0.02
        taking.seen(1000)
    assert taking.rate < 1
    assert taking.wait_s(0) == 0


def test_what_came_back_was_not_taken() -> None:
    """Of 2,000 that are gone the broker refused 1,500, in two parts."""
    clock = Clock()
    taking = Taking(clock)
    taking.seen(0)
    taking.sent(2000)
    for back in (1000, 500):
        taking.answered(back, confirmed=False)
        taking.came_back(back)
    taking.answered(500, confirmed=True)
    clock.now += 0.05
    assert taking.seen(0) == 500
    assert taking.seen(0) == 0


def test_what_is_taken_before_it_is_known_to_be_confirmed_counts_then() -> None:
    """Consumers may be faster than the broker's answer; what it refuses in the end was another's that came back."""
    clock = Clock()
    taking = Taking(clock)
    taking.seen(0)
    taking.sent(100)
    assert [taking.seen(100), taking.seen(30)] == [0, 0]
    taking.answered(60, confirmed=True)
    assert taking.seen(30) == 60
    taking.answered(40, confirmed=False)
    taking.came_back(30)
    assert taking.seen(0) == 0


def test_what_is_taken_back_was_not_taken() -> None:
    """Nor is it counted later, when as many of another relay's are gone."""
    clock = Clock()
    taking = Taking(clock)
    taking.seen(0)
    sent(taking, 100)
    taking.came_back(80)
    assert [taking.seen(out) for out in (20, 200, 0)] == [0, 0, 20]


@pytest.mark.parametrize("answered", [True, False])
def test_what_other_relays_sent_and_got_back_was_not_taken(answered: bool) -> None:
    """However often a thousand hints come and go, also while the broker has not answered for this relay's own."""
    clock = Clock()
    taking = Taking(clock)
    for _ in range(20):
        for out in (1064, 0):
            clock.now += 0.01
            assert taking.seen(out) == 0
        taking.sent(64)
        if not answered:
            clock.now += 0.01
            assert taking.seen(0) == 0
        taking.answered(64, confirmed=False)
        taking.came_back(64)
    assert taking.rate == 0


@pytest.mark.parametrize("recent_s", [0.05, RECENT_S])
def test_what_is_found_lost_was_not_taken(recent_s: float) -> None:
    """A hint that has been out for a while tells nothing when it goes, and until then it counts."""
    for waited, counted in ((0.99, 100), (2.01, 0)):
        clock = Clock()
        taking = Taking(clock, recent_s)
        taking.seen(0)
        sent(taking, 100)
        for _ in range(10):
            clock.now += waited * recent_s / 10
            assert taking.seen(100) == 0
        clock.now += 0.001 * recent_s
        assert taking.seen(0) == counted


STEPS = ["sent", "confirmed", "refused", "came_back", "seen"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 300), st.floats(0, 1)), max_size=40))
def test_no_more_was_taken_than_the_broker_has_confirmed(steps: list[tuple[str, int, float]]) -> None:
    """Whatever others do to what is out; and no figure is ever below nothing."""
    clock = Clock()
    taking, confirmed, taken = Taking(clock), 0, 0
    for what, count, after_s in steps:
        clock.now += after_s
        if what == "sent":
            taking.sent(count)
        elif what == "came_back":
            taking.came_back(count)
        elif what == "seen":
            got = taking.seen(count)
            assert got >= 0
            taken += got
        else:
            taking.answered(count, confirmed=what == "confirmed")
            confirmed += count if what == "confirmed" else 0
        assert taken <= confirmed
        assert min(taking.out, taking.rate, taking.wait_s(0)) >= 0
