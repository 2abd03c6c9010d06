"""What would block the event loop of async handlers is refused there, and works on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from support.consuming import AsyncTask, Desk, Task, async_handler, handler

INSERT = sa.text("INSERT INTO public.effects VALUES (:job, :attempt)")


def _write(job: Any) -> None:
    with job.transaction() as session:
        session.execute(INSERT, {"job": job.id, "attempt": job.attempt})


def _send(_key: str, _request: Any) -> str:
    return "sent"


BLOCKING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "transaction": (_write, "asyncio.to_thread"),
    "effect": (lambda job: job.effect("charge", {}, send=_send), "await job.effect_async()"),
    "checkpoint": (lambda job: job.checkpoint, "asyncio.to_thread"),
    "load_checkpoint": (lambda job: job.load_checkpoint("page"), "asyncio.to_thread"),
    "retry_budget": (lambda job: job.retry_budget, "asyncio.to_thread"),
}


@pytest.mark.parametrize("what", BLOCKING)
def test_what_blocks_is_refused_on_the_loop(desk: Desk, what: str) -> None:
    """The first attempt fails for good, with what to do instead; nothing was written or sent."""
    block, remedy = BLOCKING[what]

    async def handle(job: Any, _payload: Any) -> None:
        block(job)

    desk.start(async_handler(handle))
    [job_id] = desk.submit("a", payload=AsyncTask)
    desk.done(1, "failed")
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    assert what in message
    assert remedy in message
    assert desk.database.count("effects") == 0
    assert desk.database.rows("SELECT 1 FROM public.effects") == []


def test_async_with_a_transaction_says_what_to_do(desk: Desk) -> None:
    """It is no async context manager; the handler is told how to go about it, once."""

    async def handle(job: Any, _payload: Any) -> None:
        async with job.transaction() as session:
            await session.execute(INSERT)

    desk.start(async_handler(handle))
    [job_id] = desk.submit("a", payload=AsyncTask)
    desk.done(1, "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert "asyncio.to_thread" in desk.last_error(job_id)[2]


def test_what_blocks_works_on_a_thread_of_an_async_handler(desk: Desk) -> None:
    """The remedy holds: all of it goes through `asyncio.to_thread`, and what was read is there on the loop, too."""
    seen: list[Any] = []

    async def handle(job: Any, _payload: Any) -> None:
        for block, _ in BLOCKING.values():
            await asyncio.to_thread(block, job)
        seen.append((job.checkpoint, job.retry_budget))

    desk.start(async_handler(handle))
    desk.submit("a", payload=AsyncTask)
    desk.done(1)
    assert len(seen) == 1


def test_plain_handlers_may_block(desk: Desk) -> None:
    """A handler on a thread has no loop to block, even where it runs one of its own."""

    def handle(job: Any, _payload: Any) -> None:
        async def inner() -> None:
            for block, _ in BLOCKING.values():
                block(job)

        asyncio.run(inner())

    desk.start(handler(handle))
    desk.submit("a", payload=Task)
    desk.done(1)
