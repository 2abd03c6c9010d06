"""Where scans begin, and when one begins at the beginning: pure decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import QueryCanceled

from outbox.database.floors import (
    CHEAP_S,
    FEWEST_PAUSES,
    LONGEST_PAUSE_S,
    MOST_QUEUES,
    PAUSES,
    SLACK,
    Cadence,
    Floor,
    Floors,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = NOW - timedelta(hours=1)
JOB = UUID(int=7)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def looked(cadence: Cadence, clock: Clock, seconds: float) -> None:
    """Make a full look that takes so long."""
    with cadence.full_look():
        clock.now += seconds


def pause(cadence: Cadence, clock: Clock) -> float:
    """Return how long it takes until a full look is due."""
    began = clock.now
    while not cadence.due:
        clock.now += 0.001
    return clock.now - began


def test_cheap_full_looks_are_made_every_time() -> None:
    """Without dead history nothing is ever left out."""
    clock = Clock()
    cadence = Cadence(clock=clock)
    assert cadence.due
    looked(cadence, clock, CHEAP_S * 0.9)
    assert cadence.due


@given(st.floats(CHEAP_S * 1.01, 3))
def test_dear_full_looks_take_a_bounded_share_and_wait_no_longer_than_they_must(seconds: float) -> None:
    """The pause bounds what full looks cost, and itself stays within the longest one or five times a look."""
    clock = Clock()
    cadence = Cadence(clock=clock)
    looked(cadence, clock, seconds)
    waited = pause(cadence, clock)
    assert waited >= min(PAUSES * seconds, max(LONGEST_PAUSE_S, FEWEST_PAUSES * seconds)) - 0.001
    assert waited <= max(LONGEST_PAUSE_S, FEWEST_PAUSES * seconds) + 0.002


def test_least_and_longest_pause_can_be_chosen() -> None:
    """A look that need not be made often is not, however cheap; and one that may wait waits."""
    clock = Clock()
    rare, patient = Cadence(least_pause_s=0.9, clock=clock), Cadence(longest_pause_s=30, pauses=1000, clock=clock)
    looked(rare, clock, 0)
    assert pause(rare, clock) == pytest.approx(0.9, abs=0.002)
    looked(patient, clock, 0.1)
    assert pause(patient, clock) == pytest.approx(30, abs=0.002)


def test_a_full_look_that_takes_too_long_for_the_server_is_a_dear_one() -> None:
    """If the server ends it, others go on from where they were, instead of running into the same limit again."""
    clock = Clock()
    cadence = Cadence(clock=clock)
    look = cadence.full_look()
    look.__enter__()
    clock.now += 15
    assert not look.__exit__(QueryCanceled, QueryCanceled(), None)
    assert pause(cadence, clock) == pytest.approx(FEWEST_PAUSES * 15, abs=0.002)


def test_a_full_look_that_failed_is_due_again() -> None:
    """An error is no look."""
    clock = Clock()
    cadence = Cadence(least_pause_s=5, clock=clock)
    with pytest.raises(ZeroDivisionError), cadence.full_look():
        raise ZeroDivisionError
    assert cadence.due
    looked(cadence, clock, 1)
    cadence.reset()
    assert cadence.due


def test_a_floor_is_what_was_seen_first_and_never_the_present() -> None:
    """The first row decides; where there is none or a new one, late-comers still have a moment."""
    floor = Floor()
    floor.learn(NOW, (OLD, JOB), NOW)
    assert (floor.owed, floor.released) == ((OLD, JOB), NOW - SLACK)
    floor.learn(NOW, None, OLD)
    assert (floor.owed, floor.released) == ((NOW - SLACK, UUID(int=0)), OLD)
    floor.learn(NOW, (NOW, JOB), None)
    assert (floor.owed, floor.released) == ((NOW - SLACK, UUID(int=0)), NOW - SLACK)


def test_floors_remember_a_bounded_number_of_queues() -> None:
    """Each queue has its own floor; of too many the one that was asked for longest ago is forgotten, which costs one
    look from the beginning, and no other queue's is.
    """
    floors = Floors()
    floors.of("a").learn(NOW, (OLD, JOB), None)
    assert floors.of("a").owed == (OLD, JOB)
    assert floors.of("b") == Floor()
    for number in range(MOST_QUEUES - 1):
        floors.of(str(number))
        floors.of("a")
    assert len(floors.all()) == MOST_QUEUES
    assert floors.of("a").owed == (OLD, JOB)
    assert "b" not in floors.all()
    floors.forget()
    assert floors.all() == {}
