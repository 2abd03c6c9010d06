"""No job succeeds without what its handler or `apply` has asked for by an async call that nobody has awaited."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from outbox import enqueue_async
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.effects import Provider, run_one

ROW = "SELECT state, sends, settled_by FROM {s}.effects"


async def _forgets(call: Any) -> None:
    call()


async def _lets_a_task_go(call: Any) -> None:
    asyncio.get_running_loop().create_task(call())


@pytest.mark.parametrize("act", [_forgets, _lets_a_task_go])
def test_an_effect_that_nobody_awaits_is_not_taken_for_done(desk: Desk, act: Any) -> None:
    """Nothing of such a call has run: its job fails at once and says so, instead of succeeding without it."""
    provider, applied = Provider(), []

    async def send(key: str, request: Any) -> Any:
        return provider.send(key, request)

    async def handle(job: Any, _payload: Any) -> None:
        await act(lambda: job.effect_async("charge", {}, send=send))

    tested = async_handler(handle, lambda *_: applied.append(1))
    job_id = run_one(desk, (tested, AsyncTask), "failed")
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    assert "nobody has awaited job.effect_async() of 'charge'" in message
    assert (provider.keys, applied, desk.database.rows(ROW)) == ([], [], [])


@pytest.mark.parametrize("forgotten", [0, 1])
def test_of_two_calls_of_one_name_the_one_that_nobody_awaits_is_found(desk: Desk, forgotten: int) -> None:
    """Whichever it is: that the other has been awaited is no reason to take this one for done."""

    async def send(_key: str, _request: Any) -> Any:
        return "done"

    async def handle(job: Any, _payload: Any) -> None:
        calls = [job.effect_async("charge", {"amount": amount}, send=send) for amount in (1, 2)]
        await calls[1 - forgotten]

    job_id = run_one(desk, (async_handler(handle), AsyncTask), "failed")
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    assert "nobody has awaited job.effect_async() of 'charge'" in message


def test_a_plain_handler_that_calls_the_async_twin_has_done_nothing(desk: Desk) -> None:
    """There nobody could await it: its job fails and names `job.effect()`."""

    def handle(job: Any, _payload: Any) -> None:
        job.effect_async("charge", {}, send=Provider().send)

    job_id = run_one(desk, (handler(handle), Task), "failed")
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    assert "call job.effect() in a plain Handler" in message


def test_apply_that_calls_the_async_twin_is_refused(desk: Desk) -> None:
    """Nobody could await it there: the job fails at once, and what else `apply` has written is gone."""

    async def handle(_job: Any, _payload: Any) -> None: ...

    def apply(_session: Any, job: Any, _result: Any) -> None:
        job.effect_async("charge", {}, send=Provider().send)

    job_id = run_one(desk, (async_handler(handle, apply), AsyncTask), "failed")
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code, desk.outcomes(job_id)) == ("terminal", "handler_misdeclared", ["failed"])
    assert "call it in handle()" in message


def test_apply_that_calls_an_async_twin_with_its_session_is_refused(desk: Desk) -> None:
    """Nobody could await that either: the job does not succeed without what its `apply` has asked for."""

    async def handle(_job: Any, _payload: Any) -> None: ...

    def apply(session: Any, _job: Any, _result: Any) -> None:
        enqueue_async(session, Task(name="next"))

    job_id = run_one(desk, (async_handler(handle, apply), AsyncTask), "failed")
    assert "enqueue_async takes an AsyncSession or AsyncConnection, not " in desk.last_error(job_id)[2]


def test_a_call_that_was_closed_or_made_anew_is_no_forgotten_one(desk: Desk) -> None:
    """A time-out before its begin is the handler's own word, and a name may be called again and awaited again."""
    provider = Provider()

    async def send(key: str, request: Any) -> Any:
        return provider.send(key, request)

    async def handle(job: Any, _payload: Any) -> None:
        job.effect_async("mail", {}, send=send).close()
        with suppress(TimeoutError):
            await asyncio.wait_for(job.effect_async("mail", {}, send=send), 0)
        task = asyncio.create_task(job.effect_async("mail", {}, send=send))
        task.cancel()
        await asyncio.wait([task])
        await job.effect_async("charge", {}, send=send)
        await job.effect_async("charge", {}, send=send)

    job_id = run_one(desk, (async_handler(handle), AsyncTask))
    assert desk.outcomes(job_id) == ["succeeded"]
    assert desk.database.rows("SELECT name FROM {s}.effects") == [("charge",)]
