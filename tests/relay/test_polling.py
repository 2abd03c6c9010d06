"""When the relay looks again, and when it asks writers to wake it."""

from __future__ import annotations

import pytest

from outbox_relay.polling import ASLEEP_S, CALM_MAX_S, CALM_S, REST_AFTER, REST_S, Polling


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def look(polling: Polling, clock: Clock, every_s: float, count: int, released: int) -> None:
    """Make so many looks, one each `every_s` seconds."""
    for _ in range(count):
        clock.now += every_s
        polling.after(released, more=False)


def test_a_trickle_leaves_the_relay_sleepy_and_a_stream_does_not() -> None:
    """Below the busy rate writers are asked to wake it; above, and until it finds nothing, they are left alone."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    assert not polling.sleepy, "nothing is known yet"
    look(polling, clock, 0.02, 1, 0)
    assert polling.sleepy
    look(polling, clock, 0.02, 500, 1)
    clock.now += REST_S
    assert polling.sleepy
    look(polling, clock, 0.002, 100, 3)
    assert not polling.sleepy
    look(polling, clock, 0.1, 5, 3)
    assert not polling.sleepy, "there is still work at every look"
    look(polling, clock, 0.02, 5, 0)
    assert polling.sleepy


def test_polling_slows_down_when_idle_and_wakes_up_at_work() -> None:
    """The wait grows slowly up to its maximum while nothing comes and starts over with the next job."""
    polling = Polling(0.002, 0.02)
    waits = [polling.after(0, more=False) for _ in range(20)]
    assert waits[0] == 0.002
    assert waits[-1] == 0.02
    assert waits == sorted(waits)
    assert sum(waits[:8]) > 0.02, "a trickle of a job every 20 ms is met by looks a few milliseconds apart"
    assert waits[7] < 0.009
    assert polling.after(3, more=False) == 0.002
    assert polling.after(1000, more=True) == 0


def test_after_many_wake_ups_it_sees_for_a_moment_how_many_come_unasked() -> None:
    """Writers may come no faster because they are asked; left alone, their true number shows, and asking ends."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 3, 0)
    look(polling, clock, 0.02, REST_AFTER - 1, 1)
    assert polling.sleepy
    look(polling, clock, 0.02, 1, 1)
    assert not polling.sleepy
    look(polling, clock, 0.002, 20, 2)
    clock.now += REST_S
    assert not polling.sleepy


def rests(polling: Polling, clock: Clock, every_s: float, seconds: float) -> int:
    """Let a job come each `every_s` seconds, with a look at it, and return how many times the relay leaves off."""
    count, sleepy = 0, polling.sleepy
    for _ in range(int(seconds / every_s)):
        look(polling, clock, every_s, 1, 1)
        count += sleepy and not polling.sleepy
        sleepy = polling.sleepy
    return count


def test_a_steady_trickle_is_left_off_ever_more_rarely() -> None:
    """What comes in a rest is found later than what wakes the relay: rests that show nothing become rare."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 3, 0)
    assert rests(polling, clock, 0.02, 1.0) == 1
    assert rests(polling, clock, 0.02, 10.0) <= 3
    rests(polling, clock, 0.02, 2 * CALM_MAX_S)
    assert rests(polling, clock, 0.02, 10 * CALM_MAX_S) in {9, 10}


def test_in_a_rest_it_looks_as_often_as_it_may() -> None:
    """What would have woken it waits for the next look: the pauses between these don't grow meanwhile."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 3, 0)
    look(polling, clock, 0.02, REST_AFTER, 1)
    assert [polling.after(0, more=False) for _ in range(20)] == [0.002] * 20
    clock.now += REST_S
    look(polling, clock, 0.002, 20, 0)
    assert polling.after(0, more=False) == 0.02


def calm(clock: Clock, every_s: float) -> Polling:
    """Return one that has not found for minutes that more come in a rest."""
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 3, 0)
    rests(polling, clock, every_s, 10 * CALM_MAX_S)
    clock.now += REST_S
    return polling


def test_work_that_comes_twice_as_quickly_is_looked_into_at_once() -> None:
    """It may be held up already: more than so many can't come where each commit waits for the one before."""
    clock = Clock()
    polling = calm(clock, 0.1)
    assert rests(polling, clock, 0.04, 2 * REST_AFTER * 0.04) >= 1


def test_after_much_work_rests_are_as_frequent_as_at_first() -> None:
    """What a relay knew of the trickle before tells nothing of the one after."""
    clock = Clock()
    polling = calm(clock, 0.02)
    polling.after(1000, more=True)
    look(polling, clock, 0.3, 3, 0)
    assert polling.sleepy
    assert rests(polling, clock, 0.02, CALM_S / 2) == 1


@pytest.mark.parametrize("full", [{"more": True}, {"more": False, "blocked": True}], ids=["more", "blocked"])
def test_who_has_a_backlog_need_not_be_woken(full: dict[str, bool]) -> None:
    """A full batch, or hints that there is no room for, make it busy at once."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 3, 0)
    assert polling.sleepy
    polling.after(5, **full)
    assert not polling.sleepy


def test_sleep_is_light_at_first() -> None:
    """Writers that looked before anybody asked are met by looks soon after; then a look now and then is enough."""
    clock = Clock()
    polling = Polling(0.002, 0.02, clock)
    look(polling, clock, 0.02, 1, 0)
    waits = [polling.asleep() for _ in range(20)]
    assert waits[0] == 0.002
    assert waits == sorted(waits)
    assert waits[-1] == waits[-2] == ASLEEP_S
    polling.after(1000, more=True)
    assert polling.asleep() == 0.002
