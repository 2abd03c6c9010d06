"""Where handlers run: a fixed set of threads for `Handler`, an event loop with a fixed number of tasks for
`AsyncHandler`.

Each keeps a short line of claimed attempts that wait for a slot; what still waits can be taken back and handed to
others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from outbox_consumer.attempt import Attempts
from outbox_consumer.book import Entry

__all__ = ["LoopSlots", "Slots", "ThreadSlots"]

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

    def cancel(self, entry: Entry) -> None:
        """End an attempt from outside, where that can be done."""

    def close(self) -> None:
        """Stop where it is."""


class _Line:
    """Attempts that wait for a slot, first come, first served. Not locked: its owner's lock guards it."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Sequence[Entry]) -> None:
        self._entries.extend(entries)

    def pop(self) -> Entry:
        return self._entries.popleft()

    def take_back(self, older_than: float | None) -> list[Entry]:
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
        self._line = _Line()
        self._running = 0
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

    def cancel(self, entry: Entry) -> None:
        """Do nothing: a thread can't be ended from outside. The attempt has been told through its job."""

    def close(self) -> None:
        """Nothing to do: daemon threads end with the process."""

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._line:
                    self._wake.wait()
                entry = self._line.pop()
                self._running += 1
            try:
                if entry.job.lost:
                    self._attempts.drop(entry)
                else:
                    self._attempts.run(entry)
            except BaseException:  # a slot must outlive whatever a handler does to it
                log.critical("an attempt's bookkeeping failed", extra={"job": str(entry.job.id)}, exc_info=True)
            with self._wake:
                self._running -= 1
            self._on_free()


class LoopSlots:
    """One event loop on a thread of its own, running up to `size` attempts as tasks; `apply` runs on threads beside
    it.
    """

    def __init__(self, size: int, attempts: Attempts, on_free: Callable[[], None]) -> None:
        self.size = size
        self._attempts = attempts
        self._on_free = on_free
        self._line = _Line()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running = 0
        self._scheduled = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._appliers = ThreadPoolExecutor(max_workers=size, thread_name_prefix="outbox-apply")

    def start(self) -> None:
        """Start the loop."""
        threading.Thread(target=self._serve, name="outbox-handlers-async", daemon=True).start()

    def submit(self, entries: Sequence[Entry]) -> None:
        """Put claimed attempts in line."""
        with self._lock:
            self._line.extend(entries)
        self._schedule()

    def load(self) -> int:
        """Return how many attempts run or wait here."""
        with self._lock:
            return self._running + len(self._line)

    def running(self) -> int:
        """Return how many attempts run."""
        with self._lock:
            return self._running

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""
        with self._lock:
            return self._line.take_back(older_than)

    def cancel(self, entry: Entry) -> None:
        """Cancel an attempt's task: its lease is lost or its time is up."""
        self._loop.call_soon_threadsafe(self._cancel_task, id(entry))

    def close(self) -> None:
        """Stop the loop where it is."""
        self._appliers.shutdown(wait=False, cancel_futures=True)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except (
                BaseException
            ):  # a handler's SystemExit or KeyboardInterrupt stops run_forever; the other tasks must go on
                log.exception("a handler tried to end the event loop")
                continue
            return

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        with self._lock:
            self._scheduled = False
            count = min(self.size - self._running, len(self._line))
            entries = [self._line.pop() for _ in range(count)]
            self._running += count
        for entry in entries:
            self._tasks[id(entry)] = self._loop.create_task(self._work(entry))

    async def _work(self, entry: Entry) -> None:
        try:
            if entry.job.lost:
                self._attempts.drop(entry)
                return
            succeeded, result = await self._attempts.run_async(entry)
            if succeeded:
                await self._complete(entry, result)
        except BaseException:  # as in ThreadSlots
            log.critical("an attempt's bookkeeping failed", extra={"job": str(entry.job.id)}, exc_info=True)
        finally:
            self._tasks.pop(id(entry), None)
            with self._lock:
                self._running -= 1
                more = bool(self._line)
            if more:
                self._schedule()
            self._on_free()

    async def _complete(self, entry: Entry, result: Any) -> None:
        if entry.handler.has_apply():
            await asyncio.shield(self._loop.run_in_executor(self._appliers, self._attempts.succeed, entry, result))
        else:
            self._attempts.succeed(entry, result)

    def _cancel_task(self, key: int) -> None:
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()
