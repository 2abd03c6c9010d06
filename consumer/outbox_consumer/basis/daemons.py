"""An executor whose threads don't keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from outbox_consumer.basis.copies import end_copy

__all__ = ["DaemonExecutor"]

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Up to `size` daemon threads, started when they are needed.

    The standard library's own executor waits at the interpreter's exit for every thread, and one that runs user code
    may never return. It is a `ThreadPoolExecutor` only because an event loop takes nothing else as its default.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(max_workers=1)  # never starts a thread: `submit` is ours
        self._size = size
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._alive = 0
        self._open = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on one of the threads. Raises `RuntimeError` after `shutdown`."""
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError("the consumer is closed")
            self._queue.put(lambda: _run(future, fn, args, kwargs))
            self._open += 1
            if self._alive < min(self._open, self._size):
                self._alive += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._alive}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls and end the idle threads; never waits."""
        del wait, cancel_futures
        with self._guard:
            self._ended = True
            for _ in range(self._alive):
                self._queue.put(None)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
            del call
            with self._guard:
                self._open -= 1


def _run(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - as the standard executor: the future carries it
        end_copy()
        future.set_exception(error)
    else:
        end_copy()
        future.set_result(result)
