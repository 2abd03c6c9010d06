"""SIGTERM and SIGINT: the first asks for an orderly end, the second for one at once. Handlers only count."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Requests", "counted_signals"]


class Requests:
    """How often this process was asked to end."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0


@contextmanager
def counted_signals() -> Iterator[Requests]:
    """Count SIGTERM and SIGINT instead of dying from them. Only the main thread can; others count nothing.

    A handler that set a `threading.Event` could deadlock with the wait that it interrupts; a number can't.
    """
    requests = Requests()
    own = os.getpid()

    def count(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != own:  # a forked copy, whose maker wants it ended, as `multiprocessing` ends its workers
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        requests.count += 1
        requests.last = number

    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    before = {number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
