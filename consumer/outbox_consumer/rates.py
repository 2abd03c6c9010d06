"""How many jobs of each queue this consumer ends, in jobs a second: counted in memory, told with its sign of life."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

__all__ = ["EndRates"]

# A rate that has fallen below this is not told any more.
_NOTHING = 0.001


class EndRates:
    """`add` is for any thread; `per_s` for one. It knows the queues whose jobs end here, and forgets the idle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: Counter[str] = Counter()
        self._rates: dict[str, float] = {}
        self._since = clock()

    def add(self, queues: Iterable[str]) -> None:
        """Count jobs that have ended, by their queues' names."""
        with self._lock:
            self._ended.update(queues)

    def per_s(self) -> dict[str, float]:
        """Return jobs ended a second since the last call, the rate of then counting for half."""
        now = self._clock()
        with self._lock:
            ended, self._ended = self._ended, Counter()
        passed_s, self._since = max(now - self._since, 0.001), now
        rates = {}
        for queue in ended.keys() | self._rates.keys():
            measured = ended[queue] / passed_s
            rate = (self._rates[queue] + measured) / 2 if queue in self._rates else measured
            if rate >= _NOTHING:
                rates[queue] = rate
        self._rates = rates
        return dict(rates)
