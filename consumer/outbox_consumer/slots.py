"""Where handlers run: a fixed set of threads for `Handler`; for `AsyncHandler` see `tasks`.

Each set keeps a short line of claimed attempts that wait for a slot; what still waits can be taken back and handed to
others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from outbox_consumer.attempt import Attempts
from outbox_consumer.book import Entry

__all__ = ["Line", "Slots", "ThreadSlots"]

log = logging.getLogger("outbox.consumer")


class Slots(Protocol):
    """What the claiming side and the runtime need of a set of slots."""

    size: int

    def start(self) -> None:
        """Start the threads or the loop."""

    def submit(self, entries: Sequence[Entry]) -> None:
        """Put claimed attempts in line."""

    def load(self) -> int:
        """Return how many attempts run or wait here."""

    def running(self) -> int:
        """Return how many attempts run."""

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""

    def hold(self) -> None:
        """Start nothing more; what waits in line stays there to be taken back."""

    def cancel(self, entry: Entry) -> None:
        """End an attempt from outside, where that can be done."""

    def close(self) -> None:
        """Let go of what still runs."""


class Line:
    """Attempts that wait for a slot, first come, first served. Not locked: its owner's lock guards it."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add at the end."""
        self._entries.extend(entries)

    def pop(self) -> Entry:
        """Remove and return the first."""
        return self._entries.popleft()

    def take_back(self, older_than: float | None) -> list[Entry]:
        """Remove and return all, or those claimed before a monotonic instant."""
        taken = [entry for entry in self._entries if older_than is None or entry.taken_at < older_than]
        if taken:
            chosen = set(map(id, taken))
            self._entries = deque(entry for entry in self._entries if id(entry) not in chosen)
        return taken


class ThreadSlots:
    """`size` daemon threads, each running one attempt at a time."""

    def __init__(self, size: int, attempts: Attempts, on_free: Callable[[], None]) -> None:
        self.size = size
        self._attempts = attempts
        self._on_free = on_free
        self._line = Line()
        self._running = 0
        self._held = False
        self._closed = False
        self._wake = threading.Condition()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.size):
            threading.Thread(target=self._work, name=f"outbox-handler-{number}", daemon=True).start()

    def submit(self, entries: Sequence[Entry]) -> None:
        """Put claimed attempts in line."""
        with self._wake:
            self._line.extend(entries)
            self._wake.notify(len(entries))

    def load(self) -> int:
        """Return how many attempts run or wait here."""
        with self._wake:
            return self._running + len(self._line)

    def running(self) -> int:
        """Return how many attempts run."""
        with self._wake:
            return self._running

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""
        with self._wake:
            return self._line.take_back(older_than)

    def hold(self) -> None:
        """Start nothing more."""
        with self._wake:
            self._held = True

    def cancel(self, entry: Entry) -> None:
        """Do nothing: a thread can't be ended from outside. The attempt has been told through its job."""

    def close(self) -> None:
        """End the idle threads; one that runs a handler ends with it, or with the process."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            entry = self._next()
            if entry is None:
                return
            try:
                if entry.job.lost:
                    self._attempts.drop(entry, "the lease was lost before the start")
                else:
                    self._attempts.run(entry)
            except BaseException:  # a slot must outlive whatever a handler does to it
                log.critical("an attempt's bookkeeping failed", extra={"job": str(entry.job.id)}, exc_info=True)
            del entry
            with self._wake:
                self._running -= 1
            self._on_free()

    def _next(self) -> Entry | None:
        """Wait for an attempt to run; None once closed."""
        with self._wake:
            while not self._closed and (self._held or not self._line):
                self._wake.wait()
            if self._closed:
                return None
            self._running += 1
            return self._line.pop()
