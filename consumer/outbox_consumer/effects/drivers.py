"""Running an effect's course: on the calling thread, or from a coroutine with the database on a helper thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import Any, NoReturn

import sqlalchemy as sa

from outbox_consumer.basis.copies import end_copy
from outbox_consumer.basis.errors import TerminalError, is_a
from outbox_consumer.basis.trails import asking
from outbox_consumer.basis.unfinished import is_awaitable
from outbox_consumer.effects.course import Ask, Course, Record
from outbox_consumer.effects.errors import EffectNotSent, EffectOnHold, EffectUnsettled, SurelyNotDone, note_whose
from outbox_consumer.effects.refusals import unawaited, unsettled_reason

__all__ = ["Underway", "run", "run_async"]

# Of the effects of one attempt, in its history; as many as `cancelled_after` has.
_NAMED = 100

Persist = Callable[[Callable[[sa.Connection], Any]], Any]


class Underway:
    """The effects of one attempt that are being called just now, and those that it has called at all. Thread-safe.

    Args:
        refuse: raises what a call is told that comes after the end.
    """

    def __init__(self, refuse: Callable[[], NoReturn]) -> None:
        self._refuse = refuse
        self._lock = threading.Lock()
        self._now: set[str] = set()
        self._touched: dict[str, None] = {}
        # The words by which the last call of each has left it to a person.
        self._held: dict[str, str] = {}
        # What `effect_async` has returned and nobody has begun so far, with its name.
        self._made: dict[object, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self._over = False

    def touched(self) -> list[str]:
        """Return the names of the effects that were called, in order: the first hundred, and how many more."""
        with self._lock:
            names = list(self._touched)
        more = len(names) - _NAMED
        return names if more <= 0 else [*names[:_NAMED], f"and {more} more"]

    @property
    def busy(self) -> bool:
        """Whether any is being called just now."""
        return bool(self._now)

    def made(self, mark: object, name: str, call: Coroutine[Any, Any, Any]) -> None:
        """Take over a call, known by its mark, of which nothing runs until somebody awaits it."""
        with self._lock:
            self._made[mark] = (name, call)

    def begun(self, mark: object) -> None:
        """Take over that somebody awaits it: from now on the call itself tells what is wrong."""
        with self._lock:
            self._made.pop(mark, None)

    def note(self, name: str, *, begins: bool) -> None:
        """Take over that another process begins to call an effect, or is done with it."""
        with self._lock:
            self._touched[name] = None
            (self._now.add if begins else self._now.discard)(name)

    def forget(self) -> None:
        """Take over that the other process calls none any more."""
        with self._lock:
            self._now.clear()

    def close(self) -> None:
        """Refuse every further call: the handler has ended."""
        with self._lock:
            self._over = True

    def end(self) -> None:
        """Refuse every further call: the handler has returned.

        Raises:
            EffectOnHold: an effect was left to a person, and the handler has kept that to itself.
            TerminalError: one was called, and its call neither awaited nor closed.
            EffectUnsettled: a thread or task of the handler's own is calling one just now.
        """
        self.close()
        with self._lock:
            now, held = sorted(self._now), list(self._held.values())
            made = list(self._made.values())
        if held:
            raise EffectOnHold(held[0])
        idle = [(name, call) for name, call in made if inspect.getcoroutinestate(call) == inspect.CORO_CREATED]
        if idle:
            for _, call in idle:
                call.close()  # or Python would complain, too, and name nothing of it
            raise unawaited(list(dict.fromkeys(str(name) for name, _ in idle)))
        if now:
            raise EffectUnsettled(unsettled_reason(", ".join(f"{name} (being called)" for name in now[:3])))

    @contextmanager
    def calling(self, name: str) -> Iterator[None]:
        """Keep a name to this call for the length of the block.

        Raises:
            RuntimeError: another call of this attempt has it.
            LeaseLost: the handler has returned.
        """
        with self._lock:
            if self._over:
                self._refuse()
            if name in self._now:
                raise RuntimeError(
                    f"effect {name!r} is being called elsewhere in this very attempt; call it once, or name them apart"
                )
            self._now.add(name)
            self._touched[name] = None
            self._held.pop(name, None)
        try:
            yield
        except BaseException as error:
            note_whose(error, name)
            if is_a(error, EffectOnHold):
                with self._lock:
                    self._held[name] = str(error)
            raise
        finally:
            with self._lock:
                self._now.discard(name)


class _SyncNeededError(SurelyNotDone, TerminalError):
    """A plain effect was given a function that returns a coroutine: nothing of that has run."""

    default_code = "effect_misdeclared"


def run(course: Course, persist: Persist) -> Any:
    """Run a course on this thread."""

    def do(step: Record | Ask) -> Any:
        if isinstance(step, Record):
            return persist(step.run)
        with asking(course.trail, step.what):
            try:
                answer = step.run()
            finally:
                end_copy()
        return _not_awaitable(step.what, answer)

    steps, answer, error = course.steps(), None, None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        answer, error = None, None
        try:
            answer = do(step)
        except BaseException as raised:  # noqa: BLE001 - the course decides what it means
            error = raised


async def run_async(course: Course, persist: Persist, ledger: Executor | None = None) -> Any:
    """Run a course from a coroutine; only user code runs on the event loop.

    A task that is cancelled while something is being recorded first learns what became of that, and records what
    follows from it, so that nothing that has happened is forgotten; no more user code is called. `persist` bounds it.

    Args:
        course: to be run.
        persist: runs what the course writes.
        ledger: the threads for that; None: those of `asyncio.to_thread`, which handlers may keep busy for long.

    Raises:
        asyncio.CancelledError: the task was cancelled, whatever came of the course.
    """
    recorder = _Recorder(persist, ledger)
    try:
        value = await _driven(course, recorder)
    except BaseException as error:
        if recorder.cancelled is None or error is recorder.cancelled:
            raise
        raise recorder.cancelled from error
    if recorder.cancelled is not None:
        raise recorder.cancelled
    return value


class _Recorder:
    """Runs what one course writes, to its end, and keeps the cancel of its task for afterwards."""

    def __init__(self, persist: Persist, ledger: Executor | None) -> None:
        self._persist = persist
        self._ledger = ledger
        self.cancelled: asyncio.CancelledError | None = None

    async def record(self, step: Record) -> Any:
        """Return what the statement answers."""
        write = partial(contextvars.copy_context().run, self._persist, step.run)
        writing = asyncio.get_running_loop().run_in_executor(self._ledger, write)
        while not writing.done():
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError as error:
                self.cancelled = error
        return writing.result()


async def _driven(course: Course, recorder: _Recorder) -> Any:
    async def do(step: Record | Ask) -> Any:
        if isinstance(step, Record):
            return await recorder.record(step)
        if recorder.cancelled is not None:
            if step.what == "send":  # of which nothing has run: that is known, whatever the cancel was for
                raise EffectNotSent("its task was cancelled before it was sent") from recorder.cancelled
            raise recorder.cancelled
        with asking(course.trail, step.what):
            try:
                answer = step.run()
                return await answer if is_awaitable(answer) else answer
            finally:
                end_copy()

    steps, answer, error = course.steps(), None, None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        answer, error = None, None
        try:
            answer = await do(step)
        except BaseException as raised:  # noqa: BLE001 - the course decides what it means
            error = raised


def _not_awaitable(what: str, answer: Any) -> Any:
    """Refuse an answer that would have to be awaited to become one."""
    if is_a(answer, CoroutineType):
        answer.close()
        raise _SyncNeededError(
            f"{what} returned a coroutine, which has not run; await job.effect_async() in an AsyncHandler"
        )
    if is_awaitable(answer):
        raise TypeError(f"{what} returned an awaitable ({type(answer).__name__}); await job.effect_async() instead")
    return answer
