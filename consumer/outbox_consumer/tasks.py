"""Where `AsyncHandler`s run: an event loop on a thread of its own, with a fixed number of tasks at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from outbox_consumer.attempt import Attempts
from outbox_consumer.book import Entry
from outbox_consumer.daemons import DaemonExecutor
from outbox_consumer.slots import Line

__all__ = ["LoopSlots"]

log = logging.getLogger("outbox.consumer")

_CANCEL_WITHIN_S = 0.5
_MIN_HELPERS = 16


class LoopSlots:
    """One event loop on a thread of its own, running up to `size` attempts as tasks; `apply` runs on threads beside
    it.
    """

    def __init__(self, size: int, attempts: Attempts, on_free: Callable[[], None]) -> None:
        self.size = size
        self._attempts = attempts
        self._on_free = on_free
        self._line = Line()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running = 0
        self._scheduled = False
        self._held = False
        self._closed = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._appliers = DaemonExecutor(size, "outbox-apply")
        # For the handlers' own `asyncio.to_thread`: apart, so that a call that never returns costs no `apply`.
        self._helpers = DaemonExecutor(max(size, _MIN_HELPERS), "outbox-to-thread")
        self._loop.set_default_executor(self._helpers)

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

    def hold(self) -> None:
        """Start nothing more."""
        with self._lock:
            self._held = True

    def cancel(self, entry: Entry) -> None:
        """Cancel an attempt's task: its lease is lost or its time is up."""
        self._call(lambda: self._cancel_task(id(entry)))

    def close(self) -> None:
        """Stop the loop; the tasks that still run are cancelled, within a bound."""
        self._appliers.shutdown()
        self._helpers.shutdown()
        self._call(self._stop)

    def _call(self, action: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action)

    def _stop(self) -> None:
        self._closed = True
        self._loop.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:  # a SystemExit in a task of a handler's own ends run_forever; the others must go on
                log.exception("a handler tried to end the event loop")
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_WITHIN_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._call(self._fill)

    def _fill(self) -> None:
        with self._lock:
            self._scheduled = False
            count = 0 if self._held else min(self.size - self._running, len(self._line))
            entries = [self._line.pop() for _ in range(count)]
            self._running += count
        for entry in entries:
            key = id(entry)
            task = self._loop.create_task(self._work(entry))
            self._tasks[key] = task
            # Not in the task itself: one that is cancelled before its first step never runs a line of it.
            task.add_done_callback(partial(self._done, entry))

    async def _work(self, entry: Entry) -> None:
        if entry.job.lost:
            self._attempts.drop(entry, "the lease was lost before the start")
            return
        succeeded, result = await self._attempts.run_async(entry)
        if succeeded:
            await self._complete(entry, result)

    def _done(self, entry: Entry, task: asyncio.Task[None]) -> None:
        self._tasks.pop(id(entry), None)
        if task.cancelled():  # before its first step, or beside its `apply`, which goes on and settles its end
            if not entry.completing:
                self._attempts.fail(entry, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            log.critical("an attempt's bookkeeping failed", extra={"job": str(entry.job.id)}, exc_info=error)
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
