"""SIGTERM and SIGINT: the first asks for an orderly end, the second for one at once. Handlers only count."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["Requests", "counted_signals"]


class Requests:
    """How often this process was asked to end."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0
        # Its `put` may interrupt its own `get`, unlike an event's `set` the event's `wait`.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def add(self, number: int) -> None:
        """Count one more. For a signal's handler."""
        self.count += 1
        self.last = number
        self._bell.put(None)

    def wait(self, timeout_s: float) -> None:
        """Return at the next request, at the latest after so many seconds."""
        with suppress(queue.Empty):
            self._bell.get(timeout=timeout_s)


@contextmanager
def counted_signals() -> Iterator[Requests]:
    """Count SIGTERM and SIGINT instead of dying from them. Only the main thread can; others count nothing.

    A handler that set a `threading.Event` could deadlock with the wait that it interrupts; `Requests` can't.
    """
    requests = Requests()
    own = os.getpid()

    def count(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != own:  # a forked copy, whose maker wants it ended, as `multiprocessing` ends its workers
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        requests.add(number)

    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    before = {number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
