"""Where `AsyncHandler`s run: an event loop on a thread of its own, with a fixed number of attempts at once.

A task of its own is dear beside a handler that never waits. So one task starts attempts one after the other, and the
first that waits for something keeps it for itself: whatever waits has a task that no other attempt shares.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from outbox_consumer.basis.copies import end_copy
from outbox_consumer.basis.daemons import DaemonExecutor
from outbox_consumer.basis.errors import is_a
from outbox_consumer.basis.resuming import Rest
from outbox_consumer.holding.book import Entry
from outbox_consumer.running.attempt import Attempts
from outbox_consumer.running.slots import Line

__all__ = ["LoopSlots"]

log = logging.getLogger("outbox.consumer")

_CANCEL_WITHIN_S = 0.5
_MIN_HELPERS = 16
# For so long one task may start attempts before the loop's other tasks have their turn.
_TURN_S = 0.002
_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def _stop_loops_of_a_copy() -> None:
    """Have a forked copy leave the loop after its step: it would take the wake-ups that its parent waits for."""
    for loop in list(_loops):
        loop.stop()


os.register_at_fork(after_in_child=_stop_loops_of_a_copy)


class LoopSlots:
    """One event loop on a thread of its own, running up to `size` attempts at once; `apply` runs on threads beside it.

    All but the line belongs to the loop's thread.
    """

    def __init__(self, size: int, attempts: Attempts, on_free: Callable[[], None]) -> None:
        self.size = size
        self._attempts = attempts
        self._on_free = on_free
        self._line = Line()
        # The attempts that wait for something, by entry.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._running = 0
        self._scheduled = False
        self._held = False
        self._closed = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        _loops.add(self._loop)
        self._appliers = DaemonExecutor(size, "outbox-apply")
        # What an effect has done must be on record at once, whatever else waits.
        self._ledger = DaemonExecutor(max(size, _MIN_HELPERS), "outbox-effects")
        # For the handlers' own `asyncio.to_thread`: apart, so that a call that never returns costs no `apply`, and
        # keeps no effect from its record.
        self._helpers = DaemonExecutor(max(size, _MIN_HELPERS), "outbox-to-thread")
        self._loop.set_default_executor(self._helpers)

    def start(self) -> None:
        """Start the loop."""
        threading.Thread(target=self._serve, name="outbox-handlers-async", daemon=True).start()

    def submit(self, entries: Sequence[Entry], *, ahead: bool = False) -> None:
        """Put claimed attempts in line; `ahead` of those that came without it."""
        with self._lock:
            self._line.extend(entries, ahead=ahead)
        self._schedule()

    def load(self) -> int:
        """Return how many attempts run or wait here."""
        waiting = len(self._line)  # first: who leaves the line meanwhile is counted twice, not never
        return waiting + self._running

    def running(self) -> int:
        """Return how many attempts run."""
        return self._running

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""
        with self._lock:
            taken = self._line.take_back(older_than)
        # The loop may have looked while the first was out of the line.
        self._schedule()
        return taken

    def hold(self) -> None:
        """Start nothing more."""
        self._held = True

    def cancel(self, entry: Entry) -> None:
        """Cancel an attempt's task: its lease is lost or its time is up."""
        self._call(lambda: self._cancel_task(id(entry)))

    def close(self) -> None:
        """Stop the loop; the tasks that still run are cancelled, within a bound."""
        self._appliers.shutdown()
        self._helpers.shutdown()
        self._ledger.shutdown()
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
                end_copy()
                log.exception("a handler tried to end the event loop")
            end_copy()
        self._held = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if self._starting is not None:
            tasks.append(self._starting)
        with suppress(BaseException):
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_WITHIN_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _schedule(self, *, here: bool = False) -> None:
        """Have the loop start attempts; `here`: this is its own thread, which needs no waking."""
        with self._lock:
            if self._scheduled or not len(self._line):
                return
            self._scheduled = True
        with suppress(RuntimeError):  # the loop is closed
            (self._loop.call_soon if here else self._loop.call_soon_threadsafe)(self._fill)

    def _fill(self) -> None:
        with self._lock:
            self._scheduled = False
        if self._starting is None and self._may_start():
            # In an empty context: nothing that a handler has set may reach another attempt.
            work = self._start_some()
            self._starting = self._loop.create_task(work, context=contextvars.Context())
            self._starting.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("a task that starts attempts failed", exc_info=error)
        if self._starting is task:  # it should have passed on; whatever ended it must not keep others from starting
            self._pass_on()

    def _may_start(self) -> bool:
        return self._running < self.size and len(self._line) > 0 and not self._held

    async def _start_some(self) -> None:
        """Start attempts until one waits for something, and see that one through. What has become of the others is
        settled when the next one starts.
        """
        until = time.monotonic() + _TURN_S
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine of one
        untouched = contextvars.copy_context()
        while self._may_start():
            self._running += 1
            entry = self._line.pop()
            if entry is None:
                self._running -= 1
                break
            course = self._work(entry)
            try:
                waited_for = course.send(None)
            except StopIteration:
                end_copy()
                self._ended(entry, None)
            except BaseException as error:  # noqa: BLE001 - as a task: it never reaches the others
                end_copy()
                self._ended(entry, error)
            else:
                end_copy()
                self._pass_on()
                await self._see_through(task, entry, course, waited_for)
                return
            if time.monotonic() > until or task.cancelling() or contextvars.copy_context() != untouched:
                break
        self._pass_on()

    def _pass_on(self) -> None:
        """Let another task start attempts; this one starts no more."""
        self._starting = None
        if self._may_start():
            self._schedule(here=True)

    async def _see_through(
        self, task: asyncio.Task[None], entry: Entry, course: Coroutine[Any, Any, None], waited_for: Any
    ) -> None:
        self._tasks[id(entry)] = task
        error: BaseException | None = None
        try:
            await Rest(course, waited_for)
        except BaseException as raised:  # noqa: BLE001 - as above
            error = raised
        finally:
            self._tasks.pop(id(entry), None)
            self._ended(entry, error)
            self._schedule(here=True)

    async def _work(self, entry: Entry) -> None:
        if entry.job.is_lost:
            self._attempts.drop(entry, "the lease was lost before the start")
            return
        entry.job.keep_ledger_on(self._ledger)
        entry.job.keep_off(threading.get_ident())
        succeeded, result = await self._attempts.run_async(entry)
        if not succeeded:
            return
        if entry.handler.has_apply():
            await asyncio.shield(self._loop.run_in_executor(self._appliers, self._attempts.succeed, entry, result))
        else:
            self._attempts.succeed(entry, result)

    def _ended(self, entry: Entry, error: BaseException | None) -> None:
        if is_a(error, asyncio.CancelledError):  # beside its `apply`, which goes on and settles its end
            if not entry.completing:
                self._attempts.fail(entry, error)
        elif error is not None:
            self._attempts.break_off(entry, error)
        self._running -= 1
        self._on_free()

    def _cancel_task(self, key: int) -> None:
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()
