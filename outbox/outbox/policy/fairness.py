"""Whose jobs go next where more are due than there is room for: tenants in turn, each by its weight. Pure policy.

Each round gives every tenant that has something due as many jobs as its weight says. Who has less leaves the rest to
the others and saves nothing up; so nothing idles, and a tenant that comes back has its share at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Shares", "Turn", "Visited", "round_of", "share"]


class Turn(NamedTuple):
    """Where a round was left off."""

    tenant: str = ""
    """Who was served last."""
    credit: int = 0
    """How many more jobs it has in this round; 0: the next tenant's turn has come."""


class Visited(NamedTuple):
    """One tenant, in the order of the round."""

    tenant: str
    weight: int
    due: int
    """How many of its jobs may go; anything from the room on means that nobody has counted further."""


class Shares(NamedTuple):
    """What each visited tenant gets, and where the next release goes on."""

    counts: list[int]
    turn: Turn


def share(visited: Sequence[Visited], room: int, turn: Turn, *, whole: bool) -> Shares:
    """Return how many jobs of each visited tenant go into `room`.

    Args:
        visited: tenants in the order of the round; the one of `turn` stands first, if it is there at all.
        room: the most jobs together.
        turn: where the last release left off.
        whole: whether these are all tenants. If not, each has one turn at most, since the others come first.
    """
    counts = [0] * len(visited)
    order = list(range(len(visited)))
    credit = 0
    if visited and visited[0].tenant == turn.tenant:
        credit = min(turn.credit, visited[0].weight)
        if not credit:  # it has had its turn: last in this round, or in another one
            order = [*order[1:], 0] if whole else order[1:]
    waiting = [place for place in order if visited[place].due > 0]
    left, last = room, visited[order[-1]].tenant if order else turn.tenant
    while left > 0 and waiting:
        for place in waiting:
            one = visited[place]
            allowed = credit if credit and place == 0 else one.weight
            credit = 0
            given = min(allowed, one.due - counts[place], left)
            counts[place] += given
            left -= given
            if not left:
                return Shares(counts, Turn(one.tenant, allowed - given))
        waiting = [place for place in waiting if counts[place] < visited[place].due] if whole else []
    return Shares(counts, Turn(last, 0))


def round_of(number: int, weight: int, credit: int) -> int:
    """Return in which round a tenant's job goes, the `number`-th of its share counted from 0; `credit` is what an
    earlier release left it of the first round (0: nothing).
    """
    return (number + (weight - min(credit, weight) if credit else 0)) // weight
