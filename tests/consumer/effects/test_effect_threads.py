"""The threads on which an asynchronous handler's effects wait for the database are nobody else's."""

from __future__ import annotations

import asyncio
from typing import Any

from support.consuming import AsyncTask, Desk, async_handler
from support.waiting import until

CALLS = 40  # more than there are threads for them


def test_handlers_that_keep_all_helper_threads_busy_delay_no_effect(desk: Desk) -> None:
    """An effect is sent and on record while every thread of `asyncio.to_thread` is taken, by others and for long."""
    gate = desk.gate()
    sent: list[str] = []

    async def send(key: str, _request: Any) -> str:
        sent.append(key)
        return "done"

    async def handle(job: Any, payload: Any) -> None:
        if payload.name == "busy":
            await asyncio.gather(*(asyncio.to_thread(gate.wait, job) for _ in range(CALLS)))
        else:
            await job.effect_async("charge", {}, send=send)

    desk.start(async_handler(handle))
    desk.submit("busy", payload=AsyncTask)
    gate.holds(16)
    [job_id] = desk.submit("quick", payload=AsyncTask)
    until(lambda: desk.state(job_id) == "succeeded", within_s=20)
    assert len(sent) == 1
    gate.open()
    desk.done(2)
