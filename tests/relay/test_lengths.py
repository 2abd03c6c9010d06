"""How long a runway is: short for slow queues and idle ones, long within a moment where much is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.database.floors import MOST_QUEUES
from outbox.releasing.relaying import DueQueue
from outbox.settings import RelaySettings
from outbox_relay.lengths import FLOOR, HORIZON_S, Length, Lengths
from outbox_relay.messages import Message, Outcome, Settled
from outbox_relay.pacing import refill_at
from outbox_relay.runways import BATCHES, SHARED_BATCH, Runways
from outbox_relay.taking import Taking

from .test_pacing import hints

MOST = 2000


class Queue:
    """A queue with a backlog, whose consumers take `rate` hints a second; looked at every few milliseconds."""

    def __init__(self, most: int = MOST) -> None:
        self.now, self.out, self.longest = 1000.0, 0.0, 0
        self.length = Length(most, self.clock)
        self.taking = Taking(self.clock)
        self.unanswered = 0

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def look(self, rate: float, for_s: float, every_s: float = 0.005, refused: float = 0) -> int:
        """Look, and top up as the relay does, for so long; return the length in the end. `refused`: the part of what
        has gone out that the broker refuses.
        """
        for _ in range(round(for_s / every_s)):
            self.now += every_s
            back = int(self.unanswered * refused)
            self.taking.answered(back, confirmed=False)
            self.taking.came_back(back)
            self.taking.answered(self.unanswered - back, confirmed=True)
            self.unanswered = 0
            self.out = max(0.0, self.out - back - rate * every_s)
            taken = self.taking.seen(int(self.out))
            self.length.seen(int(self.out), self.taking.rate, taken)
            if self.out <= refill_at(self.length.hints):
                self.unanswered = self.length.hints - int(self.out)
                self.taking.sent(self.unanswered)
                self.out = float(self.length.hints)
                self.length.full()
            self.longest = max(self.longest, self.length.hints)
        return self.length.hints


def test_nothing_piles_up_where_nobody_takes_anything() -> None:
    """Without consumers the shortest runway goes out, and no more."""
    queue = Queue()
    assert queue.look(0, 5) == FLOOR
    assert (queue.out, queue.longest) == (FLOOR, FLOOR)


def test_a_slow_queue_hoards_nothing() -> None:
    """Eight slots with jobs of a second each never see more than the shortest runway."""
    queue = Queue()
    queue.look(8, 30)
    assert queue.longest == FLOOR


@pytest.mark.parametrize("part", [0.3, 0.9, 1])
def test_hints_that_come_back_make_no_runway_longer(part: float) -> None:
    """Where the broker refuses them nobody is in a hurry, be it that a few are taken."""
    queue = Queue()
    queue.look(0, 5, refused=part)
    queue.look(100, 5, refused=part)
    assert queue.longest == FLOOR


def test_what_is_taken_beside_hints_that_come_back_makes_it_longer() -> None:
    """A third of what is out comes back each time; consumers would take all the rest and more."""
    queue = Queue()
    assert queue.look(12_000, 0.5, refused=0.3) > 4 * FLOOR


def test_a_fast_fleet_has_its_whole_runway_within_tens_of_milliseconds() -> None:
    """Each look that finds half of it gone doubles it, up to the setting."""
    queue = Queue()
    queue.look(12_000, 0.1)
    assert queue.longest == MOST
    assert queue.look(12_000, 0.5) == MOST


@pytest.mark.parametrize("rate", [1000, 3000, 6000])
def test_it_follows_what_is_taken(rate: int) -> None:
    """It settles at some hundred milliseconds of what is taken, and shrinks again within two seconds."""
    queue = Queue()
    assert rate * HORIZON_S / 2 <= queue.look(rate, 3) <= rate * HORIZON_S * 2
    assert queue.look(10, 2.5) <= 2 * FLOOR
    assert queue.look(0, 10) == FLOOR


@given(st.lists(st.tuples(st.floats(0, 50_000), st.floats(0.01, 0.5)), max_size=6), st.integers(1, 5000))
def test_it_stays_between_its_limits(phases: list[tuple[float, float]], most: int) -> None:
    """Whatever is taken, it is never beyond the setting and never below the shortest."""
    queue = Queue(most)
    for rate, for_s in phases:
        assert min(FLOOR, most) <= queue.look(rate, for_s) <= most
    assert queue.longest <= most


def test_a_limit_that_changes_holds_at_once_and_is_grown_into() -> None:
    """A shorter one cuts the length, below the shortest, too; a longer one is reached where enough is taken."""
    queue = Queue()
    queue.look(12_000, 0.1)
    queue.length.bound(100, own=True)
    assert (queue.length.hints, queue.length.own) == (100, True)
    assert queue.look(12_000, 0.5) == 100
    queue.length.bound(3, own=True)
    assert queue.look(12_000, 0.5) == 3
    queue.length.bound(4 * MOST, own=False)
    assert (queue.length.hints, queue.length.own) == (FLOOR, False)
    assert queue.look(50_000, 0.5) == 4 * MOST


def test_what_is_told_of_runways_is_of_late() -> None:
    """Each queue with hints due lately is told of, with whose word the limit is."""
    lengths = Lengths(MOST)
    for queue, most in (("own", 5), ("other", None)):
        lengths.bound(queue, most).seen(0, 0, 0)
    lengths.of("never seen")
    lengths.bound("long ago", None).clock = lambda: 0.0
    lengths.of("long ago").seen(0, 0, 0)
    assert lengths.told() == {
        "own": {"hints": 5, "most": 5, "set": True},
        "other": {"hints": FLOOR, "most": MOST, "set": False},
    }


def test_names_are_not_remembered_without_end() -> None:
    """Past a number of queues only those that have something due are."""
    lengths = Lengths(MOST)
    for number in range(3 * MOST_QUEUES):
        lengths.keep({str(number)})
        lengths.of(str(number))
        assert len(lengths._lengths) <= MOST_QUEUES + 1


def test_however_many_queues_are_due_each_keeps_to_its_own_runway() -> None:
    """A pass over more of them than are remembered tops each up to its own limit and forgets no length on its way."""
    asked: dict[str, int] = {}

    def release(queue: str, count: int) -> int:
        asked[queue] = asked.get(queue, 0) + count
        return count

    runways = Runways(RelaySettings(), lambda: 10_000, release)
    due = [DueQueue(f"q{number}", 0, runway=3) for number in range(MOST_QUEUES + 100)]
    for _ in range(2):
        asked.clear()
        runways.seen(due)
        for queue in due:
            assert runways.has_room(queue)
            runways.top_up(queue)
        assert asked == dict.fromkeys((queue.name for queue in due), 3)
        assert {one["most"] for one in runways.told().values()} == {3}
        assert len(runways.told()) == len(due)
    runways.seen([DueQueue("other", 0)])
    assert len(runways.told()) == 1


def test_a_length_that_was_forgotten_is_bounded_by_the_look() -> None:
    """What is topped up is what the queue's row said, whatever is remembered of it."""
    runways = Runways(RelaySettings(), lambda: 10_000, lambda _queue, count: count)
    runways.seen([DueQueue("q", 0)])
    assert runways.top_up(DueQueue("q", 0, runway=3)).released == 3


def test_a_runway_that_has_grown_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change by a factor of two is logged with what was seen, and the next one of the queue not at once."""
    monkeypatch.setattr("outbox_relay.lengths.HORIZON_S", 1000.0)  # however slow this machine is
    caplog.set_level("INFO", "outbox.relay")

    def release(queue: str, count: int) -> int:
        runways.sends(queue, count)
        runways.answered([Settled(Message("1", queue, tuple(hints(count))), Outcome.CONFIRMED)])
        return count

    runways = Runways(RelaySettings(), lambda: 10_000, release)
    for out in (0, FLOOR, 0, 2 * FLOOR, 0):
        queue = DueQueue("q", out)
        runways.seen([queue])
        runways.top_up(queue)
    told = [vars(record) for record in caplog.records if record.getMessage() == "a runway's length has changed"]
    assert [(one["queue"], one["hints"], one["out"]) for one in told] == [("q", 2 * FLOOR, 0)]


@pytest.mark.usefixtures("long_runways")
@pytest.mark.parametrize(("shared", "asked"), [(False, [1000] * BATCHES), (True, [SHARED_BATCH])])
def test_where_tenants_share_a_queue_one_short_release_goes_out_at_a_time(shared: bool, asked: list[int]) -> None:
    """Whoever comes to it must not wait for a long one, nor for several; where one is alone, nobody does."""
    releases: list[int] = []

    def release(_queue: str, count: int) -> int:
        releases.append(count)
        return count

    runways = Runways(RelaySettings(batch=1000, runway=10_000), lambda: 10_000, release)
    queue = DueQueue("q", 0)
    runways.seen([queue])
    assert runways.top_up(queue, shared=shared).left is None
    assert releases == asked
