"""When a running handler hears of a cancel, and what it is told: at a heartbeat, a check, a fence, and the end."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from outbox import cancel, enqueue
from outbox_consumer import LeaseLost
from support.consuming import AsyncTask, Desk, OtherTask, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until

REASON = "cancelled by ann"


def cancel_it(desk: Desk, job_id: UUID) -> None:
    """Cancel a job as an operator does."""
    with desk.database.engine().begin() as connection:
        assert cancel(connection, job_id, by="ann", reason="obsolete").won


def test_a_handler_hears_at_the_next_heartbeat(desk: Desk) -> None:
    """`job.lost` is set and `job.check()` raises, with whose cancel it was; nothing is written for the attempt."""
    told: list[str] = []

    def handle(job: Any, payload: Any) -> None:
        assert job.lost.wait(30)
        with pytest.raises(LeaseLost, match=REASON) as caught:
            job.check()
        told.append(caught.value.reason)
        raise caught.value

    running = desk.start(handler(handle, lease=60), heartbeat_s=0.2)
    [job_id] = desk.submit("a")
    desk.done(1, "running")
    cancel_it(desk, job_id)
    until(lambda: told and running.counted("leases_lost"))
    assert told == [REASON]
    assert desk.outcomes(job_id) == ["cancelled"]
    assert check_invariants(desk.database) == []


def test_an_async_handler_is_cancelled_at_the_next_heartbeat(desk: Desk) -> None:
    """Its task is, wherever it waits."""
    told: list[str] = []

    async def handle(job: Any, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            with pytest.raises(LeaseLost, match=REASON):
                job.check()
            told.append("cancelled")
            raise

    desk.start(async_handler(handle, lease=60), heartbeat_s=0.2)
    with desk.database.engine().begin() as connection:
        job_id = enqueue(connection, AsyncTask(name="a")).id
    desk.done(1, "running")
    cancel_it(desk, job_id)
    until(lambda: told)
    assert desk.outcomes(job_id) == ["cancelled"]


@pytest.mark.parametrize("where", ["transaction", "checkpoint", "effect", "apply"])
def test_a_fence_tells_it_before_any_heartbeat(desk: Desk, where: str) -> None:
    """With a heartbeat far away, the next write behind a fence is refused and says whose cancel it was."""
    told: list[str] = []
    applied: list[str] = []
    sent: list[str] = []

    def write(job: Any) -> None:
        if where == "effect":
            job.effect("charge", {"cents": 1}, send=lambda *_: sent.append("charged"))
        elif where == "transaction":
            with job.transaction() as session:
                enqueue(session, OtherTask(name="next"))
        else:
            with desk.database.engine().connect() as connection, connection.begin():
                job.save_checkpoint(Session(connection), {"at": 1})

    def handle(job: Any, payload: Any) -> None:
        cancel_it(desk, job.id)
        if where == "apply":
            return
        with pytest.raises(LeaseLost) as caught:
            write(job)
        assert caught.value.refused
        told.append(caught.value.reason)
        with pytest.raises(LeaseLost, match=REASON):
            job.check()
        raise caught.value

    def apply(session: Any, job: Any, result: Any) -> None:
        applied.append(job.logical_key)

    running = desk.start(handler(handle, apply, lease=60))
    [job_id] = desk.submit("a")
    until(lambda: running.counted("leases_lost"))
    assert told == ([] if where == "apply" else [REASON])
    assert applied == sent == []
    assert desk.outcomes(job_id) == ["cancelled"]
    assert desk.database.count("checkpoints") == 0
    assert desk.database.count("jobs") == 1
    assert check_invariants(desk.database) == []


def test_the_record_tells_of_a_checkpoint_that_was_saved(desk: Desk) -> None:
    """What a running attempt had committed by the time of its cancel stands with the job."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        with job.transaction() as session:
            job.save_checkpoint(session, {"done": 3})
        gate.wait(job)

    desk.start(handler(handle, lease=60))
    [job_id] = desk.submit("a")
    gate.holds(1)
    with desk.database.engine().begin() as connection:
        result = cancel(connection, job_id, by="ann", reason="x")
    assert result.cancelled_after is not None
    assert result.cancelled_after.sentence == "1 attempt had begun; checkpoints: state"
