"""How long to wait before trying again: exponential, capped, with full jitter, safe for any count.

Source for full jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Backoff", "ceiling"]

# 2**64 times any base is past every cap that a datetime can hold, and far from the float's own limit.
_MAX_DOUBLINGS = 64


def ceiling(failures: int, base_s: float, cap_s: float, factor: float = 2.0) -> float:
    """Return the longest wait after `failures` failures in a row, in seconds: base * factor**(failures - 1), at most
    `cap_s`.
    """
    doublings = min(max(failures - 1, 0), _MAX_DOUBLINGS)
    try:
        return min(base_s * factor**doublings, cap_s)
    except OverflowError:
        return cap_s


@dataclass(slots=True)
class Backoff:
    """The state of one loop that can fail: ask `next_s()` after each failure, call `reset()` after success.

    The wait is drawn between half the ceiling and the ceiling: never zero, so that a loop can't spin.
    """

    base_s: float = 0.1
    cap_s: float = 10.0
    failures: int = field(default=0, init=False)

    def next_s(self) -> float:
        """Return the next wait in seconds and count one more failure."""
        self.failures += 1
        top = ceiling(self.failures, self.base_s, self.cap_s)
        return random.uniform(top / 2, top)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Forget the failures: the loop has succeeded."""
        self.failures = 0
