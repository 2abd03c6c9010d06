"""Bounded waits and bounded measurements."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def wait_until(done: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> None:
    """Wait for a condition; `TimeoutError` if it doesn't come."""
    end = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not done after {timeout_s:g} s")
        time.sleep(every_s)


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block after so many seconds, wherever it hangs. Main thread only."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
