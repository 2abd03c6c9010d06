"""Releases hints: in plain order while there is room for all that is due, tenant by tenant where a queue is crowded.

The one path for the relay and for consumers without a broker. The policy stands in `outbox.fairness`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox.fairness import Turn, Visited, round_of, share
from outbox.floors import BEGINNING, MOST_QUEUES, Cadence, Floors, Place
from outbox.leasing import Ability
from outbox.link import Link
from outbox.relaying import REHINT_MAX_S, ReleasedHint, release, runnable

__all__ = ["Sharer"]

# Tenants visited by one statement, and how far it looks into the line of each: so many rows at most.
MOST_VISITS = 256
FEWEST_VISITS = 16
DEPTH_TOTAL = 1024
# Rounds of visits in one release.
VISITS = 4
# A crowded queue in which one tenant is alone goes by plain order for so long, until it is looked at again.
ALONE_S = 0.02


@dataclass(slots=True)
class _Line:
    """What is remembered of a queue. All of it may be forgotten: that costs one release in plain order."""

    crowded: bool = False
    alone_until: float = 0.0
    turn: Turn = field(default_factory=Turn)
    cadence: Cadence = field(default_factory=Cadence)
    floors: Floors = field(default_factory=Floors)


@dataclass(frozen=True, slots=True)
class _Round:
    """Tenants as a visit saw them, and where the line of each that has something due begins."""

    visited: list[Visited]
    since: list[Place]
    whole: bool

    @property
    def due(self) -> int:
        """How many tenants have something due."""
        return sum(one.due > 0 for one in self.visited)


class Sharer:
    """Releases hints again and again, and remembers which queues are crowded and whose turn it is in each. For one
    thread, on one link. Any number may run at once: each has rounds of its own, and their shares hold in sum.
    """

    def __init__(
        self,
        link: Link,
        *,
        rehint_after_s: float,
        abilities: Sequence[Ability] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._rehint_after_s = rehint_after_s
        self._abilities = abilities
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    def crowded(self, queue: str) -> bool:
        """Tell whether the next release of this queue may leave plain order: the last one left something due."""
        line = self._lines.get(queue)
        return line is not None and line.crowded

    def release(self, queue: str, *, batch: int, overdue_s: float = 0, since: Place = BEGINNING) -> list[ReleasedHint]:
        """Mark up to `batch` due hints released and return them in the order in which they should go.

        Fewer than `batch` tell that nothing else is due. The other arguments are those of `outbox.relaying.release`.
        """
        line = self._line(queue)

        def plainly(count: int) -> list[ReleasedHint]:
            return release(
                self._link,
                queue,
                batch=count,
                rehint_after_s=self._rehint_after_s,
                overdue_s=overdue_s,
                abilities=self._abilities,
                since=since,
            )

        hints: list[ReleasedHint] = []
        if line.crowded and self._clock() >= line.alone_until:
            hints = self._by_tenants(line, queue, batch, overdue_s)
        if len(hints) < batch:
            hints += plainly(batch - len(hints))
        line.crowded = len(hints) >= batch
        return hints

    def _by_tenants(self, line: _Line, queue: str, batch: int, overdue_s: float) -> list[ReleasedHint]:
        """Release tenant by tenant. Where that leaves room, plain order fills it: one tenant is alone, or all that is
        left stands behind everything else, or among very many tenants few have something due.
        """
        taken: list[ReleasedHint] = []
        most = min(max(2 * batch, FEWEST_VISITS), MOST_VISITS)
        for _ in range(VISITS):
            room = batch - len(taken)
            seen = self._visit(line, queue, most, room, overdue_s)
            if seen.whole and seen.due < 2 and not taken:
                line.alone_until = self._clock() + ALONE_S
                break
            shares = share(seen.visited, room, line.turn, whole=seen.whole)
            turn, line.turn = line.turn, shares.turn
            taken += self._take(queue, seen, shares.counts, turn, overdue_s)
            if len(taken) >= batch or (seen.whole and sum(shares.counts) < room):
                break
            most = MOST_VISITS
        return taken

    def _visit(self, line: _Line, queue: str, most: int, room: int, overdue_s: float) -> _Round:
        depth = min(max(DEPTH_TOTAL // most, 1), room)
        if line.cadence.due:
            line.floors.forget()
            with line.cadence.full_look():
                rows = self._look(line, queue, most, depth, overdue_s)
        else:
            rows = self._look(line, queue, most, depth, overdue_s)
        if line.cadence.due:
            line.floors.forget()
        else:  # looks from the beginning are dear: remember where the lines of these tenants began
            for row in rows:
                if row.first_due:
                    line.floors.of(row.tenant).learn(row.instant, _place(row), None)
        visited = [Visited(row.tenant, row.weight, room if row.shown >= depth else row.shown) for row in rows]
        return _Round(visited, [_place(row) or BEGINNING for row in rows], len(rows) < most)

    def _look(self, line: _Line, queue: str, most: int, depth: int, overdue_s: float) -> list[Any]:
        known = line.floors.all()
        return self._link.run(
            "visit_tenants",
            queue=queue,
            tenant=line.turn.tenant,
            most=most,
            depth=depth,
            overdue_s=overdue_s,
            **runnable(self._abilities),
            governed=False,
            floor_tenants=list(known),
            floor_since=[floor.owed[0] for floor in known.values()],
            floor_ids=[floor.owed[1] for floor in known.values()],
        )

    def _take(
        self, queue: str, seen: _Round, counts: Sequence[int], turn: Turn, overdue_s: float
    ) -> list[ReleasedHint]:
        """Release so many of each tenant, and return them round by round, so that none waits behind another's share."""
        asked = [place for place, count in enumerate(counts) if count]
        if not asked:
            return []
        rows = self._link.run_raw(
            "release_shares",
            tuple,
            queue=queue,
            tenants=[seen.visited[place].tenant for place in asked],
            shares=[counts[place] for place in asked],
            since_keys=[seen.since[place][0] for place in asked],
            since_ids=[seen.since[place][1] for place in asked],
            overdue_s=overdue_s,
            **runnable(self._abilities),
            governed=False,
            rehint_after_s=self._rehint_after_s,
            rehint_max_s=REHINT_MAX_S,
        )
        return _round_by_round(seen.visited, rows, turn)

    def _line(self, queue: str) -> _Line:
        if queue not in self._lines and len(self._lines) >= MOST_QUEUES:
            self._lines.clear()
        return self._lines.setdefault(queue, _Line())


def _place(row: Any) -> Place | None:
    return (row.first_due, row.first_id) if row.first_due else None


def _round_by_round(visited: Sequence[Visited], rows: Sequence[Any], turn: Turn) -> list[ReleasedHint]:
    """Put hints in the order in which the rounds serve them; each tenant's by their place in its line."""
    places = {one.tenant: place for place, one in enumerate(visited)}
    lines: dict[str, list[ReleasedHint]] = {}
    for job_id, release_count, order_key, tenant in rows:
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
