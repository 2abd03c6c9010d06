"""How many traces a process begins in a second, whatever its load: what bounds the price of tracing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """A bucket that is filled by `per_s` a second and holds as many. Thread-safe."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = per_s
        self._at = clock()
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """Return how many of the wanted ones may be traced, and count them."""
        with self._lock:
            now = self._clock()
            self._left = min(self._left + (now - self._at) * self._per_s, self._per_s)
            self._at = now
            given = min(wanted, int(self._left))
            self._left -= given
            return given
