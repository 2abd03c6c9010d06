"""How many hints of tenants that have come just now may go ahead of all that is out. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Ahead"]

# What goes ahead is at most this part of what consumers take, so that those who were there before go on, too.
PART = 0.5
# So many may go at once though nobody has taken anything lately, and so many seconds of their part.
FEWEST = 16
SAVED_S = 0.05
# However full the runway is, what goes ahead may make it longer by this part, and by the fewest.
LONGER = 0.25
# What stands in front of a hint while fewer are out is gone at once.
FEW_OUT = 8


@dataclass(slots=True)
class Ahead:
    """One queue's. A bucket that fills with the part of what is taken."""

    clock: Callable[[], float] = time.monotonic
    _level: float = FEWEST
    _at: float | None = None

    def most(self, rate: float, *, out: int, runway: int) -> int:
        """Return how many may go now.

        Args:
            rate: how many hints all consumers of the queue take in a second.
            out: how many hints are out and unclaimed.
            runway: its length now.
        """
        now = self.clock()
        passed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        self._level = min(self._level + rate * PART * passed_s, max(FEWEST, rate * PART * SAVED_S))
        return max(0, min(int(self._level), int(runway * (1 + LONGER)) + FEWEST - out))

    def sent(self, count: int) -> None:
        """Take in that so many have gone."""
        self._level -= count
