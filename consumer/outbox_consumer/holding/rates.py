"""How many jobs of each queue this consumer ends, in jobs a second: counted in memory, told with its sign of life."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

__all__ = ["EndRates"]

# Ends that come by chance differ from what was expected by more than so many times its square root in one of hundreds
# of cases.
_BY_CHANCE = 3
# A rate that has fallen below this is not told any more.
_NOTHING = 0.001


class EndRates:
    """`add` is for any thread; `per_s` for one. It knows the queues whose jobs end here, and forgets the idle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: Counter[str] = Counter()
        # Without those above.
        self._before: Counter[str] = Counter()
        self._rates: dict[str, float] = {}
        self._since = clock()

    def add(self, queues: Iterable[str]) -> None:
        """Count jobs that have ended, by their queues' names."""
        with self._lock:
            self._ended.update(queues)

    def totals(self) -> dict[str, int]:
        """Return how many jobs of each queue have ended since the start. From any thread."""
        with self._lock:
            return dict(self._before + self._ended)

    def per_s(self) -> dict[str, float]:
        """Return jobs ended a second since the last call. The rate of then counts for half, unless chance does not
        explain so many ends, or so few: then the rate has changed, and only what was measured counts.
        """
        now = self._clock()
        with self._lock:
            ended, self._ended = self._ended, Counter()
            self._before.update(ended)
        passed_s, self._since = max(now - self._since, 0.001), now
        rates = {}
        for queue in ended.keys() | self._rates.keys():
            measured = ended[queue] / passed_s
            before = self._rates.get(queue)
            rate = measured if before is None or _changed(before * passed_s, ended[queue]) else (before + measured) / 2
            if rate >= _NOTHING:
                rates[queue] = rate
        self._rates = rates
        return dict(rates)


def _changed(expected: float, ended: int) -> bool:
    """Tell whether so many ends are more, or fewer, than chance makes of what was expected. Pure."""
    return abs(ended - expected) > _BY_CHANCE * math.sqrt(max(expected, 1.0))
