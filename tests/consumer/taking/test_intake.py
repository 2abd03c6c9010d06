"""How much a consumer takes: pure policy, and the list of hints that wait for a decision."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.settings.queue_slots import QueueSlots
from outbox_consumer.basis.connections import pool_sizes
from outbox_consumer.contract.registry import Lane
from outbox_consumer.holding.heart import beat_interval_s
from outbox_consumer.holding.hints import Hint, Inbox, Wake
from outbox_consumer.holding.intake import Pace, lookahead, prefetch_for
from outbox_consumer.taking.groups import Group, groups_of


def ids(count: int) -> list[UUID]:
    """Return new ids."""
    return [uuid4() for _ in range(count)]


@given(st.integers(1, 1000), st.floats(0, 1e9), st.integers(1, 20_000))
def test_lookahead_is_bounded_and_nothing_for_slow_work(slots: int, pace: float, limit: int) -> None:
    """Slow jobs are not claimed ahead, fast ones by at most the limit."""
    ahead = lookahead(slots, pace, limit)
    assert 0 <= ahead <= limit
    if pace > 0.2 * slots:
        assert ahead == 0


@given(st.integers(1, 1000), st.floats(0, 1e9), st.integers(0, 1000))
def test_prefetch_covers_the_slots_within_the_bounds(slots: int, pace: float, current: int) -> None:
    """The prefetch is never below the slots or above a thousand, and is kept while it is near enough."""
    wanted = prefetch_for(slots, pace, 0)
    assert max(slots, 2) <= wanted <= 1000
    kept = prefetch_for(slots, pace, current)
    assert kept in (wanted, current)
    if current and wanted < 4 * current and current < 4 * wanted:
        assert kept == current


def test_pace_follows_fast_work_slowly_and_slow_work_at_once() -> None:
    """Fast jobs lower the estimate bit by bit, one slow job raises it by half the way."""
    pace = Pace()
    for _ in range(200):
        pace.measure(0.001)
    assert pace.seconds_per_job < 0.01
    pace.measure(10)
    assert pace.seconds_per_job > 4


def test_stalled_slots_end_all_hope_within_a_few_looks() -> None:
    """However many slots and however fast the work was, a few stalls in a row leave nothing to claim ahead."""
    pace = Pace()
    pace.seconds_per_job = 0.0001
    for _ in range(8):
        pace.stalled(2.0)
    assert lookahead(1000, pace.seconds_per_job, 1000) == 0


@pytest.mark.parametrize(
    ("lease", "setting", "expected"),
    [(60, None, 20), (60, 5, 5), (3, 30, 1), (0.1, None, 0.1), (86_400, None, 30), (None, None, 30), (300, 3600, 30)],
)
def test_beats_go_out_at_a_third_of_the_lease_or_sooner(
    lease: float | None, setting: float | None, expected: float
) -> None:
    """A setting may shorten the interval, never stretch it beyond a third of the shortest lease."""
    assert beat_interval_s(lease, setting) == expected


@given(st.integers(1, 2000), st.none() | st.integers(3, 1000))
def test_completions_always_have_a_connection_of_their_own(slots: int, limit: int | None) -> None:
    """Both sides get at least one connection, and together no more than the limit."""
    handlers, completions = pool_sizes(slots, limit)
    assert min(handlers, completions) >= 1
    assert limit is None or handlers + completions <= limit


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=10), st.lists(st.integers(1, 40), max_size=20))
def test_every_job_of_every_hint_is_taken_once_and_in_order(sizes: list[tuple[int, bool]], limits: list[int]) -> None:
    """A hint is decided with its last job, whatever the sizes of claims and hints; those that go ahead come first, and
    share no claim with others.
    """
    inbox = Inbox(Wake())
    hints = [Hint(1, number, deque(ids(size)), ahead=ahead) for number, (size, ahead) in enumerate(sizes)]
    for hint in hints:
        inbox.put(hint)
    hints.sort(key=lambda hint: not hint.ahead)
    expected = [job for hint in hints for job in hint.jobs]
    first = {job for hint in hints if hint.ahead for job in hint.jobs}
    taken: list[UUID] = []
    decided: list[Hint] = []
    for limit in [*limits, 10_000, 10_000]:
        was_ahead = inbox.ahead
        some, whole, half_read = inbox.take(limit)
        assert len(some) <= limit
        assert {job in first for job in some} <= {was_ahead}
        taken += some
        decided += whole
        assert half_read is None or (len(some) == limit and inbox.remove(half_read) and not inbox.remove(half_read))
        if half_read is not None:
            (inbox._ahead if half_read.ahead else inbox._usual).appendleft(half_read)
    assert taken == expected
    assert decided == hints
    assert len(inbox) == 0


def test_hints_are_held_only_for_so_long() -> None:
    """Once the first hint has waited too long, all leave; before that none does."""
    inbox = Inbox(Wake())
    inbox.put(Hint(1, 1, deque(ids(1)), received_at=time.monotonic() - 5))
    inbox.put(Hint(1, 2, deque(ids(1))))
    assert inbox.held_longer_than(60) == []
    assert [hint.tag for hint in inbox.held_longer_than(2)] == [1, 2]
    assert len(inbox) == 0
    inbox.put(Hint(1, 3, deque(ids(1))))
    inbox.put(Hint(1, 4, deque(ids(1)), received_at=time.monotonic() - 5, ahead=True))
    assert [hint.tag for hint in inbox.held_longer_than(2)] == [4, 3]


def test_poke_wakes_the_waiter_and_is_not_lost_beforehand() -> None:
    """A poke before the wait counts, and one during it ends it."""
    wake = Wake()
    inbox = Inbox(wake)
    wake.poke()
    before = time.monotonic()
    wake.wait(30, lambda: False)
    waiter = threading.Thread(target=wake.wait, args=(30, lambda: len(inbox) > 0))
    waiter.start()
    inbox.put(Hint(1, 1, deque(ids(1))))
    waiter.join(10)
    assert not waiter.is_alive()
    assert time.monotonic() - before < 10


class Scripted:
    """Slots of one lane with a load of one's choice."""

    def __init__(self, load: int = 0) -> None:
        self.size = 8
        self._load = load

    def load(self) -> int:
        """Return how many attempts run or wait."""
        return self._load


def fast_group(*loads: int, reserved: bool = False, batch: int = 10_000) -> Group:
    """Return a group of eight slots whose jobs have been fast, with such loads of its lanes."""
    [group] = groups_of([QueueSlots("q", 8 if reserved else None)], 8, Wake(), batch=batch)
    group.pace.seconds_per_job = 1e-6
    lanes: Any = {lane: Scripted(load) for lane, load in zip(Lane, loads, strict=False)}
    group.slots.update(lanes)
    return group


def test_not_more_is_claimed_ahead_than_can_be_kept_alive() -> None:
    """However large a batch may be and however fast the last jobs were, the next ones may be slow."""
    assert fast_group(0).capacity() == 8 + 1000
    assert fast_group(0, batch=100).capacity() == 8 + 100


def test_what_goes_ahead_has_room_at_once_and_a_little_more() -> None:
    """With nearly all in line that may be, others wait until a part is gone; of slow jobs nothing may be."""
    assert [fast_group(1000, batch=1000).capacity(ahead=ahead) for ahead in (False, True)] == [0, 258]
    assert fast_group(1258, batch=1000).capacity(ahead=True) == 0
    slow = fast_group(8)
    slow.pace.seconds_per_job = 10
    assert slow.capacity(ahead=True) == 0
    busy = fast_group(1000, batch=1000)
    assert not busy.has_room()
    busy.inbox.put(Hint(1, 1, deque(ids(1)), ahead=True))
    assert busy.has_room()


@pytest.mark.parametrize(
    ("loads", "reserved", "expected"),
    [
        ((8,), False, 1000),
        ((8, 0), False, 1000),
        ((0, 1008), False, 0),
        ((8,), True, 1000),
        ((0, 0), True, 8),
        ((3, 4), True, 1),
        ((7, 0, 1), True, 0),
    ],
)
def test_a_reserved_number_holds_over_all_lanes(loads: tuple[int, ...], reserved: bool, expected: int) -> None:
    """Shared slots are counted by the fullest lane; a queue's own number is kept by all together, with none ahead."""
    assert fast_group(*loads, reserved=reserved).capacity() == expected


def test_each_number_makes_a_group_and_the_rest_share_one() -> None:
    """A queue with a number is by itself; the others are together, if there are any."""
    queues = [QueueSlots("a"), QueueSlots("b", 3), QueueSlots("c"), QueueSlots("d", 1)]
    found = {group.queues: group.size for group in groups_of(queues, 8, Wake(), batch=10)}
    assert found == {("b",): 3, ("d",): 1, ("a", "c"): 8}
    assert [group.queues for group in groups_of(queues[1:2], 8, Wake(), batch=10)] == [("b",)]
