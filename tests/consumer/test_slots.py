"""How slots share threads and tasks between attempts: what one does reaches no other."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

import pytest

from outbox_consumer.holding.hints import Inbox, Wake
from outbox_consumer.running.attempt import Attempts
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.waiting import until

NOTED: ContextVar[str] = ContextVar("NOTED", default="")


def test_context_of_one_attempt_is_not_seen_by_another(desk: Desk) -> None:
    """A context variable that a handler sets is gone with it, whether it has waited or not."""
    seen: list[str] = []

    async def handle(_job: Any, payload: Any) -> None:
        seen.append(NOTED.get())
        NOTED.set(payload.name)
        if payload.name.endswith("5"):
            await asyncio.sleep(0)
            seen.append("" if NOTED.get() == payload.name else "changed")

    desk.submit(*map(str, range(100)), payload=AsyncTask)
    desk.start(async_handler(handle))
    desk.done(100)
    assert set(seen) == {""}
    assert len(seen) == 110


def test_attempts_that_never_wait_share_few_tasks(desk: Desk) -> None:
    """What the runtime itself puts into a task's context is taken back, or each attempt would need a task of its own,
    which costs as much again.
    """
    tasks: set[int] = set()
    kept: list[object] = []

    async def handle(*_: object) -> None:
        task = asyncio.current_task()
        if id(task) not in tasks:
            tasks.add(id(task))
            kept.append(task)  # so that no other gets its address

    desk.submit(*map(str, range(300)), payload=AsyncTask)
    desk.start(async_handler(handle), concurrency=50)
    desk.done(300)
    assert len(tasks) < 150


def test_attempts_that_wait_have_tasks_of_their_own(desk: Desk) -> None:
    """No two attempts that wait at the same time are the same task, and an attempt's task stays the same."""
    tasks: list[tuple[object, object]] = []
    gate = asyncio.Event()

    async def handle(_job: Any, payload: Any) -> None:
        before = asyncio.current_task()
        if payload.name.startswith("quick"):
            return
        if len(tasks) == 3:
            gate.set()
        tasks.append((before, None))
        place = len(tasks) - 1
        await gate.wait()
        tasks[place] = (before, asyncio.current_task())

    desk.submit(
        *(f"quick{number}" for number in range(20)), *(f"slow{number}" for number in range(4)), payload=AsyncTask
    )
    desk.start(async_handler(handle), concurrency=4)
    desk.done(24)
    assert all(before is after for before, after in tasks)
    assert len({id(before) for before, _ in tasks}) == 4


def test_time_limit_within_a_handler_reaches_that_handler_alone(desk: Desk) -> None:
    """`asyncio.timeout` cancels what the handler waits for, and nothing else."""

    async def handle(_job: Any, payload: Any) -> str:
        if payload.name == "late":
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            except TimeoutError:
                return "cut short"
        await asyncio.sleep(0)
        return "done"

    desk.submit("late", *map(str, range(20)), payload=AsyncTask)
    running = desk.start(async_handler(handle))
    desk.done(21)
    assert (running.counted("succeeded"), running.counted("retried")) == (21, 0)


def test_handler_that_cancels_itself_cancels_no_other(desk: Desk) -> None:
    """A cancellation that a handler asks for and never waits to see is not delivered to the next attempt."""

    async def handle(_job: Any, payload: Any) -> None:
        if payload.name.endswith("3"):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        else:
            await asyncio.sleep(0)

    desk.submit(*map(str, range(50)), payload=AsyncTask)
    running = desk.start(async_handler(handle))
    desk.done(50)
    assert running.counted("retried") == 0


def test_blocked_threads_hold_back_nothing_that_others_could_run(desk: Desk) -> None:
    """With all slots but one taken by jobs that wait, the others still run, one after the other, on that one."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, payload: gate.wait(job) if payload.name[0] == "s" else None))
    desk.submit(*(f"w{number}" for number in range(200)))
    desk.done(200)
    desk.submit("s1", "s2", "s3")
    gate.holds(3)
    desk.submit(*(f"f{number}" for number in range(50)))
    desk.done(250)
    assert running.consumer.running() >= 3
    gate.open()
    desk.done(253)
    until(lambda: running.consumer.running() == 0)


def test_room_wakes_who_waits_for_it_only_once_it_is_enough() -> None:
    """Room that comes between the question and the wait is not missed, nor is any that was there before."""
    wake = Wake()
    inbox = Inbox(wake)
    inbox.freed()
    asked: list[bool] = []

    def enough() -> bool:
        asked.append(len(asked) > 0)
        if len(asked) == 1:
            inbox.freed()  # as a slot would: it asks again, and pokes
            return False
        return True

    started = time.monotonic()
    inbox.want(enough)
    wake.wait(60, enough)
    assert asked == [False, True]
    wake.wait(60, lambda: True)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_an_attempt_whose_bookkeeping_fails_is_ended_all_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whatever goes wrong around a handler, no lease is renewed for ever: the attempt is recorded, another comes."""
    begin, broken = Attempts._begin, []

    def break_once(attempts: Attempts, entry: Any) -> None:
        if not broken:
            broken.append(entry)
            raise SystemExit("no more")
        begin(attempts, entry)

    async def nothing(_job: Any, _payload: Any) -> None:
        return None

    monkeypatch.setattr(Attempts, "_begin", break_once)
    payload = Task if kind == "thread" else AsyncTask
    [job_id] = desk.submit("a", payload=payload)
    desk.start(handler(lambda *_: None) if kind == "thread" else async_handler(nothing))
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.last_error(job_id)[1] == "bookkeeping_failed"
