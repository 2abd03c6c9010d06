"""Where handlers run: a fixed set of threads for `Handler`; for `AsyncHandler` see `tasks`, for processes `isolation`.

Each set keeps a short line of claimed attempts that wait for a slot; what still waits can be taken back and handed to
others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from outbox_consumer.basis.copies import end_copy
from outbox_consumer.holding.book import Entry
from outbox_consumer.running.attempt import Attempts

__all__ = ["Line", "Slots", "ThreadSlots"]


class Slots(Protocol):
    """What the claiming side and the runtime need of a set of slots."""

    size: int

    def start(self) -> None:
        """Start the threads or the loop."""

    def submit(self, entries: Sequence[Entry], *, ahead: bool = False) -> None:
        """Put claimed attempts in line; `ahead` of those that came without it."""

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
    """Attempts that wait for a slot: first come, first served, but for those that go ahead of the others. Taking the
    first needs no lock; everything else does.
    """

    def __init__(self) -> None:
        self._ahead: deque[Entry] = deque()
        self._usual: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._ahead) + len(self._usual)

    def extend(self, entries: Sequence[Entry], *, ahead: bool = False) -> None:
        """Add at the end, or behind those that go ahead."""
        (self._ahead if ahead else self._usual).extend(entries)

    def pop(self) -> Entry | None:
        """Remove and return the first; None if there is none. One step for each line, whatever other threads do."""
        if self._ahead:
            with suppress(IndexError):
                return self._ahead.popleft()
        try:
            return self._usual.popleft()
        except IndexError:
            return None

    def take_back(self, older_than: float | None) -> list[Entry]:
        """Remove and return all, or those claimed before a monotonic instant."""
        return [entry for line in (self._ahead, self._usual) for entry in _take_back(line, older_than)]


def _take_back(line: deque[Entry], older_than: float | None) -> list[Entry]:
    taken: list[Entry] = []
    with suppress(IndexError):
        while True:
            entry = line.popleft()
            if older_than is not None and entry.taken_at >= older_than:
                line.appendleft(entry)  # the others were claimed after it
                break
            taken.append(entry)
    return taken


class ThreadSlots:
    """`size` daemon threads, each running one attempt at a time.

    A thread that has ended an attempt takes the next one without a lock, and only one idle thread is woken at a time,
    which wakes another one if attempts still wait: fast jobs run one after the other on a thread that is awake
    anyway, and slow ones have all threads a moment later.
    """

    def __init__(self, size: int, attempts: Attempts, on_free: Callable[[], None]) -> None:
        self.size = size
        self._attempts = attempts
        self._on_free = on_free
        self._line = Line()
        # Set by each thread for itself, before it looks into the line: no attempt is ever in neither place.
        self._busy = [False] * size
        self._idle = 0
        # One idle thread has been woken and is not awake yet. It goes on with the waking.
        self._waking = False
        self._held = False
        self._closed = False
        self._wake = threading.Condition()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.size):
            name = f"outbox-handler-{number}"
            threading.Thread(target=self._work, args=(number,), name=name, daemon=True).start()

    def submit(self, entries: Sequence[Entry], *, ahead: bool = False) -> None:
        """Put claimed attempts in line; `ahead` of those that came without it."""
        with self._wake:
            self._line.extend(entries, ahead=ahead)
            self._wake_one()

    def load(self) -> int:
        """Return how many attempts run or wait here."""
        waiting = len(self._line)  # first: who leaves the line meanwhile is counted twice, not never
        return waiting + self.running()

    def running(self) -> int:
        """Return how many attempts run."""
        return sum(self._busy)

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""
        with self._wake:
            taken = self._line.take_back(older_than)
            # A thread may have looked while the first was out of the line, and have gone to sleep.
            self._wake_one()
        return taken

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

    def _work(self, number: int) -> None:
        while self._wait():
            self._busy[number] = True
            while not (self._held or self._closed) and (entry := self._line.pop()) is not None:
                if self._idle and not self._waking:
                    with self._wake:
                        self._wake_one()
                self._run(entry)
                del entry
                self._busy[number] = False
                self._on_free()
                self._busy[number] = True
            self._busy[number] = False

    def _run(self, entry: Entry) -> None:
        try:
            if entry.job.is_lost:
                self._attempts.drop(entry, "the lease was lost before the start")
            else:
                self._attempt(entry)
        except BaseException as error:  # noqa: BLE001 - a slot must outlive whatever a handler does to it
            end_copy()
            self._attempts.break_off(entry, error)
        finally:
            end_copy()

    def _attempt(self, entry: Entry) -> None:
        self._attempts.run(entry)

    def _wait(self) -> bool:
        """Wait until attempts are in line; False once closed."""
        with self._wake:
            while not self._closed and (self._held or not len(self._line)):
                self._idle += 1
                self._wake.wait()
                self._idle -= 1
                self._waking = False
            return not self._closed

    def _wake_one(self) -> None:
        """Wake an idle thread if attempts wait. Called with the lock held."""
        if len(self._line) and self._idle and not self._waking:
            self._waking = True
            self._wake.notify()
