"""How much a background loop asks of one statement, learned from how long the last ones took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Portion"]


class Portion:
    """A number of rows: fewer after a statement that took long or failed, more again after quick ones. Not thread-safe.

    Args:
        most: at first, and never more.
        least: never fewer, unless `most` is.
        aim_s: a statement that takes longer is halved for the next time; one that takes less than a quarter is doubled.
    """

    def __init__(self, most: int, *, least: int, aim_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._least = min(least, most)
        self._aim_s = aim_s
        self._clock = clock
        self.size = most

    @property
    def is_least(self) -> bool:
        """Whether it can't be made smaller."""
        return self.size <= self._least

    @contextmanager
    def asked(self, count: int) -> Iterator[None]:
        """Learn from the block, which asks for so many rows. After an error a quarter is asked for."""
        before, self.size = self.size, max(self._least, count // 4)
        began = self._clock()
        yield
        took_s = self._clock() - began
        if took_s > self._aim_s:
            self.size = max(self._least, count // 2)
        elif took_s < self._aim_s / 4 and 2 * count > before:
            self.size = min(self._most, 2 * before)
        else:
            self.size = before
