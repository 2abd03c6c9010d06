"""Where scans of the outbox begin, so that none starts at dead history.

While any session holds an old snapshot, PostgreSQL keeps the index entries of rows that are long gone, and a scan from
the beginning steps over all of them, each time. So each loop remembers, per queue, below which place nothing was left,
and begins there. Rows do come to lie below it: from transactions that commit late, by a high priority, or because a job
that is retried keeps its place in line. A full look finds those: every time while it is cheap, and always within a
bounded time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.errors import QueryCanceled

__all__ = ["BEGINNING", "MOST_QUEUES", "Cadence", "Floor", "Floors", "Place"]

Place = tuple[datetime, UUID]
"""A place in the line of a queue's owed hints: an order key and a job id, as jobs submitted together share the key."""
BEGINNING: Place = (datetime(1900, 1, 1, tzinfo=UTC), UUID(int=0))
"""Before every job."""

# Transactions that began before a look and commit after it are its usual late-comers: so much is looked at again.
SLACK = timedelta(seconds=1)
# A full look that takes no longer than this is made every time.
CHEAP_S = 0.004
# A dearer one takes a twentieth of the time, unless the pause would be too long; then a sixth at most.
PAUSES = 20
LONGEST_PAUSE_S = 5.0
FEWEST_PAUSES = 5
# More names than this are not remembered; those that were seen last are.
MOST_QUEUES = 2000


class Cadence:
    """Tells when a full look is due, from what the last one took. Not thread-safe.

    Args:
        longest_pause_s: the most between two full looks, unless these take more than a fifth of that.
        pauses: how much longer than a full look the pause after it is, as long as that is not too long.
        least_pause_s: the least between two full looks, however cheap they are.
    """

    def __init__(
        self,
        *,
        longest_pause_s: float = LONGEST_PAUSE_S,
        pauses: float = PAUSES,
        least_pause_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._longest_pause_s = longest_pause_s
        self._pauses = pauses
        self._least_pause_s = least_pause_s
        self._clock = clock
        self._next_at = 0.0
        self._soonest_at = 0.0

    @property
    def due(self) -> bool:
        """Whether the next look must be a full one."""
        return self.due_in() <= 0

    def due_in(self, *, hurry: bool = False) -> float:
        """Return the seconds until a full look is due; `hurry` where there is a reason to expect something of it."""
        return max(0.0, (self._soonest_at if hurry else self._next_at) - self._clock())

    def reset(self) -> None:
        """Make the next look a full one."""
        self._next_at = self._soonest_at = 0.0

    @contextmanager
    def full_look(self) -> Iterator[None]:
        """Time the full look that is made inside the block. One that fails is due again at once, unless it took too
        long for the server.
        """
        began = self._clock()
        self.reset()
        try:
            yield
        except QueryCanceled:
            self._plan(began)
            raise
        self._plan(began)

    def _plan(self, began: float) -> None:
        took_s = self._clock() - began
        pause_s = self._least_pause_s
        if took_s > CHEAP_S:
            self._soonest_at = began + took_s + FEWEST_PAUSES * took_s
            pause_s = max(pause_s, min(self._pauses * took_s, self._longest_pause_s), FEWEST_PAUSES * took_s)
        self._next_at = began + took_s + pause_s


@dataclass(slots=True)
class Floor:
    """Where a queue's owed rows begin, and since when its released ones went out (None: whenever)."""

    owed: Place = BEGINNING
    released: datetime | None = None

    def learn(self, instant: datetime, first_owed: Place | None, first_released: datetime | None) -> None:
        """Take in what a look at `instant` of the database's clock saw first in each phase (None: nothing)."""
        recent = instant - SLACK
        self.owed = min(first_owed, (recent, UUID(int=0))) if first_owed else (recent, UUID(int=0))
        self.released = min(first_released, recent) if first_released else recent


class Floors:
    """The floors of all queues that were ever seen. Not thread-safe."""

    def __init__(self) -> None:
        self._floors: dict[str, Floor] = {}

    def of(self, queue: str) -> Floor:
        """Return a queue's floor, a new one if need be: then the one that nobody has asked for longest is forgotten."""
        found = self._floors.pop(queue, None) or Floor()
        if len(self._floors) >= MOST_QUEUES:
            del self._floors[next(iter(self._floors))]
        self._floors[queue] = found
        return found

    def all(self) -> dict[str, Floor]:
        """Return all floors by queue."""
        return self._floors

    def forget(self) -> None:
        """Begin at the beginning again, for example because the server may be another one."""
        self._floors.clear()
