"""The policy of turns: shares by weight, nothing idle, nobody left waiting for more than a round."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.fairness import Turn, Visited, round_of, share

WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=8)
ROOMS = st.lists(st.integers(1, 40), min_size=1, max_size=8)


class Line:
    """A queue that is served by the policy alone: tenants `a`, `b`, … with so much due and such weights."""

    def __init__(self, weights: list[int], due: list[int]) -> None:
        self.names = [chr(97 + place) for place in range(len(weights))]
        self.weights = dict(zip(self.names, weights, strict=True))
        self.due = dict(zip(self.names, due, strict=True))
        self.turn = Turn()

    def ring(self) -> list[str]:
        """Return the tenants in the order in which they are visited."""
        ahead = [name for name in self.names if name >= self.turn.tenant]
        return ahead + [name for name in self.names if name < self.turn.tenant]

    def serve(self, room: int, most: int | None = None) -> list[str]:
        """Serve once, visiting `most` tenants (None: all), and return who was served how often."""
        ring = self.ring()[:most]
        visited = [Visited(name, self.weights[name], min(self.due[name], room)) for name in ring]
        counts, self.turn = share(visited, room, self.turn, whole=len(ring) == len(self.names))
        for name, count in zip(ring, counts, strict=True):
            self.due[name] -= count
        return [name for name, count in zip(ring, counts, strict=True) for _ in range(count)]


@given(WEIGHTS, st.lists(st.integers(0, 50), min_size=8, max_size=8), ROOMS)
def test_no_room_is_left_while_anything_is_due(weights: list[int], due: list[int], rooms: list[int]) -> None:
    """Whatever was served before, each release takes all that is due or all the room there is, and no more of any
    tenant than it has.
    """
    line = Line(weights, due[: len(weights)])
    for room in rooms:
        before = sum(line.due.values())
        assert len(line.serve(room)) == min(room, before)
        assert all(left >= 0 for left in line.due.values())


@given(WEIGHTS, ROOMS)
def test_busy_tenants_share_by_weight_whatever_the_rooms(weights: list[int], rooms: list[int]) -> None:
    """While all have work, what each has got is never further from its share than one turn of its own is."""
    line = Line(weights, [10**6] * len(weights))
    got: Counter[str] = Counter()
    for room in rooms * 20:
        got.update(line.serve(room))
        rounds = got.total() / sum(weights)
        for name, weight in line.weights.items():
            assert abs(got[name] - rounds * weight) <= weight
    if rounds >= 20:
        assert all(got[name] == pytest.approx(rounds * weight, rel=0.05) for name, weight in line.weights.items())


@given(WEIGHTS, st.integers(1, 5))
def test_nobody_waits_for_more_than_a_round(weights: list[int], room: int) -> None:
    """A tenant whose first job comes at any moment is served before any other has had two turns."""
    line = Line([*weights, 1], [10**6] * len(weights) + [0])
    for _ in range(7):
        line.serve(room)
    newcomer = line.names[-1]
    line.due[newcomer] = 1
    served: list[str] = []
    while newcomer not in served:
        served += line.serve(room)
        assert len(served) <= sum(weights) + 1 + room


def test_an_idle_share_is_lent_and_handed_back_at_once() -> None:
    """While one has nothing the other gets everything; from the moment that it has, each has its half."""
    line = Line([1, 1], [1000, 0])
    assert Counter(line.serve(100)) == {"a": 100}
    line.due["b"] = 1000
    assert Counter(line.serve(100)) == {"a": 50, "b": 50}


def test_nothing_is_saved_up_for_later() -> None:
    """Who has had nothing to do for long gets its share when it comes back, and not what it had left."""
    line = Line([3, 1], [0, 10**6])
    for _ in range(50):
        line.serve(10)
    line.due["a"] = 10**6
    assert Counter(line.serve(40)) == {"a": 30, "b": 10}


def test_one_place_at_a_time_still_gives_the_shares() -> None:
    """The rest of a turn is kept for the next release, so a weight of three is three in a row."""
    line = Line([3, 1], [100, 100])
    assert "".join("".join(line.serve(1)) for _ in range(8)) in ("aaabaaab", "baaabaaa")


def test_the_rest_of_a_turn_is_no_more_than_the_weight_is_now() -> None:
    """Whose weight was lowered in the middle of its turn has no more of that turn than the new weight gives."""
    visited = [Visited("a", 2, 100), Visited("b", 2, 100)]
    assert share(visited, 4, Turn("a", 9), whole=True) == ([2, 2], Turn("b", 0))


def test_a_part_of_the_round_serves_each_once_and_moves_on() -> None:
    """Where there are more tenants than one visit sees, none of them has a second turn before the others' first."""
    line = Line([1] * 8, [100] * 8)
    served = [line.serve(100, most=3) for _ in range(4)]
    assert Counter(name for part in served for name in part).most_common()[0][1] <= 2
    assert set("".join("".join(part) for part in served)) == set(line.names)


def test_a_share_is_told_in_rounds() -> None:
    """The rest of an earlier turn goes in the first round, the others after it."""
    assert [round_of(number, 3, 0) for number in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [round_of(number, 3, 1) for number in range(5)] == [0, 1, 1, 1, 2]
