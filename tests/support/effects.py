"""A provider that does as a script says, and jobs that call it in both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from outbox_consumer import (
    RetryableError,
)
from outbox_consumer.contract.handler import AnyHandler
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants


class Provider:
    """The other side: it keeps what it did by key, and does as each call's script says."""

    def __init__(self, *script: Any) -> None:
        self.keys: list[str] = []
        self.asked: list[str] = []
        self._script = list(script)

    def send(self, key: str, request: Any) -> Any:
        """Do as the next line of the script says: raise it, call it, or return it; the request at its end."""
        self.keys.append(key)
        line = self._script.pop(0) if self._script else request
        if isinstance(line, BaseException):
            raise line
        return line() if callable(line) else line

    def reconcile(self, answer: Any) -> Callable[[str], Any]:
        """Return a reconciler that counts, and raises or returns the answer."""

        def look(key: str) -> Any:
            self.asked.append(key)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return look


def calling(kind: str, act: Callable[..., Any], *, apply: Any = None, **declared: Any) -> tuple[AnyHandler, type[Task]]:
    """Return a handler whose `handle` is `act(effect, job)`, for each way to call `effect`; `act` for the async way
    runs on a thread of its own and waits there for the loop.
    """
    if kind == "sync":
        return handler(lambda job, _payload: act(job.effect, job), apply, **declared), Task

    async def handle(job: Any, _payload: Any) -> Any:
        loop = asyncio.get_running_loop()

        def effect(name: str, request: Any, **options: Any) -> Any:
            made = {what: _awaited(options.pop(what)) for what in ("send", "reconcile") if options.get(what)}
            call = job.effect_async(name, request, **made, **options)
            return asyncio.run_coroutine_threadsafe(call, loop).result(60)

        return await asyncio.to_thread(act, effect, job)

    return async_handler(handle, apply, **declared), AsyncTask


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    return call


def failing_once(job: Any) -> None:
    """Fail the first attempt."""
    if job.attempt == 1:
        raise RetryableError("not yet")


def run_one(desk: Desk, tested: tuple[AnyHandler, type[Task]], state: str = "succeeded") -> UUID:
    """Run one job of this handler to its end."""
    made, payload = tested
    desk.start(made)
    [job_id] = desk.submit("a", payload=payload)
    desk.done(1, state)
    assert check_invariants(desk.database) == []
    return job_id
