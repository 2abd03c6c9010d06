"""Serves a queue tenant by tenant: visits them in the order of their turns, and releases each one's share.

The one way for crowded queues and for governed ones, at the relay and at consumers without a broker. Who gets how much
is decided in `outbox.policy.fairness`, within what `outbox.policy.limiting` allows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from outbox.database.floors import BEGINNING, MOST_QUEUES, Cadence, Floors, Place
from outbox.database.link import Link
from outbox.policy.fairness import Turn, Visited, round_of, share
from outbox.policy.joiners import Joiners
from outbox.policy.limiting import Allowance, Rule, Tokens, Use
from outbox.releasing.relaying import ReleasedHint, went_out

__all__ = ["MOST_VISITS", "Asked", "Line", "Rounds", "Served", "serve", "serve_joiners", "take_from", "use_of"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Tenants visited by one statement, and how far it looks into the line of each: so many rows at most.
MOST_VISITS = 256
FEWEST_VISITS = 16
DEPTH_TOTAL = 1024
# Rounds of visits in one release; and while rows turn out to be held, or set aside for their concurrency keys.
VISITS = 4
MOST_ROUNDS = 32
ROUNDS_S = 0.05
# Tenants visited in search of those that have come just now.
FOR_JOINERS = 64


@dataclass(slots=True)
class Line:
    """What is remembered of a queue's tenants. All of it may be forgotten: then the round begins anywhere."""

    turn: Turn = field(default_factory=Turn)
    many: bool = False
    """Whether the last visit did not see all tenants: then each has one turn, and a look at its first job will do."""
    cadence: Cadence = field(default_factory=Cadence)
    floors: Floors = field(default_factory=Floors)
    joiners: Joiners = field(default_factory=Joiners)
    left_ahead: int = 0
    """How many more hints might have gone ahead of all that is out, had there been any at the last look for them."""
    clock: Callable[[], float] = time.monotonic


class Rounds:
    """The lines of all queues that are served. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, Line] = {}

    def of(self, queue: str) -> Line:
        """Return a queue's line, a new one if need be."""
        if queue not in self._lines and len(self._lines) >= MOST_QUEUES:
            self._lines.clear()
        return self._lines.setdefault(queue, Line(clock=self._clock))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: of which queue, due for how long, what the caller can run (as `runnable` says it), whether by
    limits, and when an unclaimed hint counts as lost.
    """

    queue: str
    overdue_s: float
    runnable: dict[str, Any]
    governed: bool
    rehint_after_s: float
    rehint_max_s: float

    @property
    def which(self) -> dict[str, Any]:
        """The parameters that say which hints may go."""
        return {"queue": self.queue, "overdue_s": self.overdue_s, "governed": self.governed, **self.runnable}

    @property
    def rehint(self) -> dict[str, float]:
        """The parameters that say until when a hint is taken for alive."""
        return {"rehint_after_s": self.rehint_after_s, "rehint_max_s": self.rehint_max_s}


class Served(NamedTuple):
    """What went out, round by round, and what was seen meanwhile."""

    hints: list[ReleasedHint]
    held: bool
    """Whether something is due that limits hold back, or may be."""
    alone: bool
    """Whether no more than one tenant has something due, and nothing was released for that reason."""


class Joined(NamedTuple):
    """What goes ahead of all that is out; whether several tenants share the queue; whether one is alone for sure."""

    hints: list[ReleasedHint]
    several: bool
    alone: bool


class _Seen(NamedTuple):
    """Tenants as a visit saw them, and where the line of each that has something due begins."""

    visited: list[Visited]
    since: list[Place]
    uses: dict[str, Use]
    whole: bool


def serve(link: Link, line: Line, asked: Asked, room: int, allowed: Allowance | None = None) -> Served:
    """Release up to `room` hints, tenant by tenant, and take what went out from what is `allowed` (None: there are no
    limits; then one tenant alone is left to plain order).

    Fewer hints than `room`, and nothing held: nothing else is due, but what stands behind all other jobs, or of very
    many tenants few have something.
    """
    taken: list[ReleasedHint] = []
    held = False
    most = _enough(room)
    visits, until = 0, line.clock() + ROUNDS_S
    for _ in range(MOST_ROUNDS):
        left = _room(room - len(taken), allowed)
        if left < 1:
            return Served(taken, held=len(taken) < room, alone=False)
        seen = _visit(link, line, asked, most, left)
        if allowed is None and seen.whole and not taken and sum(one.due > 0 for one in seen.visited) < 2:
            return Served([], held=False, alone=True)
        visited = _but_joiners(line, seen)
        if allowed is not None:
            allowed.learn(seen.uses)
            visited = allowed.within(visited)
        shares = share(visited, left, line.turn, whole=seen.whole)
        turn, line.turn = line.turn, shares.turn
        rows = _take(link, asked, seen, shares.counts)
        if allowed is not None:
            take_from(allowed, rows)
        taken += _round_by_round(visited, rows, turn)
        asked_for = sum(shares.counts)
        # Rows that somebody holds, or that were set aside for their keys: others may go in their place.
        short = len(rows) < asked_for
        held = short or not seen.whole or visited != seen.visited
        visits += not short
        if (seen.whole and not short and asked_for < left) or visits >= VISITS or (short and line.clock() >= until):
            break
        # Where few of them had something due, the next visit goes as far as one may.
        idle = sum(one.due > 0 for one in visited) < len(visited) - 1
        most = MOST_VISITS if idle else _enough(left - len(rows))
    return Served(taken, held=held and len(taken) < room, alone=False)


def serve_joiners(link: Link, line: Line, asked: Asked, room: int) -> Joined:
    """Release up to `room` hints that should go ahead of all that is out: of tenants that have come just now, round by
    round, by weight.
    """
    seen = _visit(link, line, asked, FOR_JOINERS, room)
    joined = _joined(line, seen)
    theirs = [one if one.tenant in joined else one._replace(due=0) for one in seen.visited]
    rows = _take(link, asked, seen, share(theirs, room, Turn(), whole=True).counts)
    line.left_ahead = room - len(rows)
    several = bool(joined) or sum(one.due > 0 for one in seen.visited) > 1
    return Joined(_round_by_round(theirs, rows, Turn()), several, alone=seen.whole and not several)


def _joined(line: Line, seen: _Seen) -> set[str]:
    return line.joiners.seen([one.tenant for one in seen.visited if one.due], line.clock(), whole=seen.whole)


def _but_joiners(line: Line, seen: _Seen) -> list[Visited]:
    """Return the visited tenants, without the jobs of those that have come since the last look for them, a moment ago,
    as long as the next one will find room ahead of others for them.
    """
    left, line.left_ahead = line.left_ahead, 0
    if not left:
        return seen.visited
    joined = _joined(line, seen)
    return [one._replace(due=0) if one.tenant in joined else one for one in seen.visited]


def use_of(row: Any) -> Use:
    """Return what a row says of a tenant's own rule and tokens, with nothing out or running."""
    return Use(0, 0, Rule(row.max_running, row.rate_per_s, row.burst), Tokens(row.tokens, row.tokens_at))


def take_from(allowed: Allowance, rows: Sequence[Any]) -> None:
    """Take from what is allowed what truly went out, as the raw rows of a release tell it."""
    if rows:
        allowed.take(Counter(row[3] for row in rows), _EPOCH + timedelta(microseconds=rows[0][4]))


def _enough(room: int) -> int:
    """Return how many tenants to visit: one for each job that there is room for, and the one that has had its turn."""
    return min(max(room + 1, FEWEST_VISITS), MOST_VISITS)


def _room(room: int, allowed: Allowance | None) -> int:
    return room if allowed is None else int(min(room, allowed.room))


def _visit(link: Link, line: Line, asked: Asked, most: int, room: int) -> _Seen:
    depth = 1 if line.many else min(max(DEPTH_TOTAL // most, 1), room)
    if line.cadence.due:
        line.floors.forget()
        with line.cadence.full_look():
            rows = _look(link, line, asked, most, depth)
    else:
        rows = _look(link, line, asked, most, depth)
    if line.cadence.due:
        line.floors.forget()
    else:  # looks from the beginning are dear: remember where the lines of these tenants began
        for row in rows:
            if row.first_due:
                line.floors.of(row.tenant).learn(row.instant, _place(row), None)
    line.many = len(rows) >= most
    visited = [Visited(row.tenant, row.weight, room if row.shown >= depth else row.shown) for row in rows]
    uses = {row.tenant: use_of(row) for row in rows} if asked.governed else {}
    return _Seen(visited, [_place(row) or BEGINNING for row in rows], uses, not line.many)


def _look(link: Link, line: Line, asked: Asked, most: int, depth: int) -> list[Any]:
    known = line.floors.all()
    return link.run(
        "visit_tenants",
        **asked.which,
        tenant=line.turn.tenant,
        most=most,
        depth=depth,
        floor_tenants=list(known),
        floor_since=[floor.owed[0] for floor in known.values()],
        floor_ids=[floor.owed[1] for floor in known.values()],
    )


def _take(link: Link, asked: Asked, seen: _Seen, counts: Sequence[int]) -> list[Any]:
    """Release so many of each tenant, and return the rows of what truly went out."""
    places = [place for place, count in enumerate(counts) if count]
    if not places:
        return []
    rows = link.run_raw(
        "release_shares",
        tuple,
        **asked.which,
        **asked.rehint,
        tenants=[seen.visited[place].tenant for place in places],
        shares=[counts[place] for place in places],
        since_keys=[seen.since[place][0] for place in places],
        since_ids=[seen.since[place][1] for place in places],
    )
    return went_out(link, asked.queue, rows)


def _place(row: Any) -> Place | None:
    return (row.first_due, row.first_id) if row.first_due else None


def _round_by_round(visited: Sequence[Visited], rows: Sequence[Any], turn: Turn) -> list[ReleasedHint]:
    """Put hints in the order in which the rounds serve them, so that none waits behind another's share; each tenant's
    by their place in its line.
    """
    places = {one.tenant: place for place, one in enumerate(visited)}
    lines: dict[str, list[ReleasedHint]] = {}
    for job_id, release_count, order_key, tenant, *_ in rows:
        lines.setdefault(tenant, []).append(ReleasedHint(job_id, release_count, order_key))
    keyed = []
    for tenant, hints in lines.items():
        place = places[tenant]
        mine = tenant == turn.tenant
        # Whose turn has just ended comes last in its round.
        rank = len(visited) if mine and not turn.credit else place
        hints.sort(key=lambda hint: hint.order_key)
        weight, credit = visited[place].weight, turn.credit if mine else 0
        keyed += [(round_of(number, weight, credit), rank, number, hint) for number, hint in enumerate(hints)]
    keyed.sort(key=lambda one: one[:3])
    return [one[3] for one in keyed]
