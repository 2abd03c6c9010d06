"""How much goes ahead of all that is out: a part of what is taken, a little more at first, never much at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outbox.releasing.relaying import DueQueue
from outbox.settings import RelaySettings
from outbox_relay.ahead import FEW_OUT, FEWEST, LONGER, PART, SAVED_S, Ahead
from outbox_relay.runways import Runways


class Clock:
    """A clock that is set."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@given(st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 20_000), st.integers(0, 50)), max_size=80))
def test_those_who_were_there_keep_their_part(looks: list[tuple[float, float, int]]) -> None:
    """Whatever is asked for, no more goes ahead than a part of what is taken, and what may be saved up."""
    clock = Clock()
    ahead = Ahead(clock)
    sent, earned, largest = 0, 0.0, float(FEWEST)
    for number, (passed_s, rate, asked) in enumerate(looks):
        clock.now += passed_s
        got = min(asked, ahead.most(rate, out=0, runway=2000))
        ahead.sent(got)
        sent += got
        earned += rate * PART * passed_s if number else 0.0
        largest = max(largest, rate * PART * SAVED_S)
        assert sent <= largest + earned + 1e-6


def test_a_part_of_what_is_taken_goes_ahead_and_no_more() -> None:
    """Who asks for more, look after look, gets a part of the rate, beside what was saved up at first."""
    clock = Clock()
    ahead = Ahead(clock)
    sent, rate, looks = 0, 1000.0, 400
    for _ in range(looks):
        got = ahead.most(rate, out=0, runway=2000)
        ahead.sent(got)
        sent += got
        clock.now += 0.005
    part = rate * PART * 0.005 * (looks - 1)
    assert part <= sent <= part + FEWEST


def test_nothing_goes_ahead_where_next_to_nothing_is_out() -> None:
    """What stands in front of a newcomer is gone at once then: its look would be for nothing, unless the queue is
    crowded.
    """
    runways = Runways(RelaySettings(), lambda: 1000, lambda _queue, count: count)
    for out, crowded, goes in ((FEW_OUT - 1, False, False), (FEW_OUT - 1, True, True), (FEW_OUT, False, True)):
        queue = DueQueue("q", out)
        runways.seen([queue])
        assert (runways.ahead(queue, crowded=crowded) > 0) is goes


def test_where_nobody_takes_anything_little_goes() -> None:
    """Without consumers a few hints go ahead once; then there are none, however long it takes."""
    clock = Clock()
    ahead = Ahead(clock)
    assert ahead.most(0, out=64, runway=64) == FEWEST
    ahead.sent(FEWEST)
    clock.now += 1000
    assert ahead.most(0, out=64 + FEWEST, runway=64) == 0


def test_a_runway_grows_by_a_part_of_its_length_at_most() -> None:
    """Hints that nobody takes in time leave no room for more."""
    clock = Clock()
    ahead = Ahead(clock)
    ahead.most(10_000, out=0, runway=1000)
    clock.now += 10
    most = int(1000 * LONGER) + FEWEST
    assert ahead.most(10_000, out=1000, runway=1000) == min(most, 250)
    assert ahead.most(10_000, out=1000 + most - 1, runway=1000) == 1
    assert ahead.most(10_000, out=1000 + most, runway=1000) == 0
    assert ahead.most(10_000, out=5000, runway=1000) == 0
