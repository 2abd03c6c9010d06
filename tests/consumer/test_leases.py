"""Leases: kept while a handler runs, told when lost, and a fence for whatever comes late."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox.operating.cancelling import cancel
from outbox_consumer import LeaseLost, TerminalError
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, :note)")
    session.execute(statement, {"job": job.id, "attempt": job.attempt, "note": str(result)})


def test_long_job_keeps_its_lease(desk: Desk) -> None:
    """A job three times its lease is run once, also while another handler spins on the CPU."""
    stop = threading.Event()

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "spin":
            while not stop.is_set():
                sum(range(1000))
        else:
            until(lambda: time.monotonic() > started + 9.5, within_s=40)
            stop.set()
        job.check()

    started = time.monotonic()
    running = desk.start(handler(handle, lease=3), heartbeat_s=0.3)
    ids = desk.submit("spin", "long")
    desk.done(2, timeout_s=60)
    assert [desk.outcomes(job_id) for job_id in ids] == [["succeeded"]] * 2
    assert running.counted("leases_lost") == 0


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_lost_lease_is_told_and_the_late_completion_refused(desk: Desk, kind: str) -> None:
    """A handler whose lease is taken learns it by `job.lost` and `job.check()`; its completion changes nothing."""
    told: list[str] = []
    refused = threading.Event()

    def look(job: Any) -> str:
        with pytest.raises(LeaseLost):
            job.check()
        told.append("check")
        return "late"

    def handle(job: Any, payload: Any) -> str:
        if job.attempt == 1:
            assert job.lost.wait(30)
            return look(job)
        assert refused.wait(60)
        return "fresh"

    async def handle_async(job: Any, payload: Any) -> str:
        if job.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return look(job)
        while not refused.is_set():
            await asyncio.sleep(0.01)
        return "fresh"

    payload = Task if kind == "sync" else AsyncTask
    tested = (
        handler(handle, write_effect, lease=60)
        if kind == "sync"
        else async_handler(handle_async, write_effect, lease=60)
    )
    running = desk.start(tested, heartbeat_s=0.2)
    [job_id] = desk.submit("a", payload=payload)
    until(lambda: desk.state(job_id) == "running")
    desk.take_lease(job_id)
    # The next attempt holds the job by now, so that nothing but the token tells the two apart.
    until(lambda: running.counted("claimed") == 2)
    until(lambda: running.counted("stale_writes_refused") == 1)
    assert told == ["check"]
    assert desk.state(job_id) == "running"
    assert desk.database.count("SELECT 1 FROM public.effects") == 0
    refused.set()
    desk.done(1)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert desk.database.rows("SELECT attempt, note FROM public.effects") == [(2, "fresh")]
    until(lambda: running.held() == 0)
    assert running.counted("leases_lost") == 1
    assert check_invariants(desk.database) == []


@pytest.mark.parametrize("ending", ["succeeds", "retries", "fails", "lets it pass"])
def test_every_late_end_is_refused(desk: Desk, ending: str) -> None:
    """Whichever way a stale attempt ends, its job is not touched; a LeaseLost that passes needs no write at all."""
    gate, second = desk.gate(), desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 2:
            second.wait(job)
            return
        gate.wait(job)
        until(lambda: job.lost)
        if ending == "lets it pass":
            job.check()
        if ending != "succeeds":
            raise ValueError("late") if ending == "retries" else TerminalError("late")

    running = desk.start(handler(handle, lease=30), heartbeat_s=0.2)
    [job_id] = desk.submit("a")
    gate.holds(1)
    desk.take_lease(job_id)
    second.holds(1)
    gate.open()
    until(lambda: running.held() == 1)
    # The next attempt holds the job by now, so that nothing but the token tells the two apart.
    assert desk.state(job_id) == "running"
    assert desk.outcomes(job_id) == ["lease_lost"]
    assert running.counted("stale_writes_refused") == (0 if ending == "lets it pass" else 1)
    assert running.counted("leases_lost") == 1
    second.open()
    desk.done(1)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert check_invariants(desk.database) == []


def test_cancelled_job_loses_its_lease(desk: Desk) -> None:
    """A job cancelled while it runs is told so within a heartbeat, and stays cancelled."""

    def handle(job: Any, payload: Any) -> None:
        assert job.lost.wait(30)

    running = desk.start(handler(handle, lease=30), heartbeat_s=0.2)
    [job_id] = desk.submit("a")
    until(lambda: desk.state(job_id) == "running")
    with desk.database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, job_id, by="a person", reason="a test")
    until(lambda: running.counted("stale_writes_refused") == 1)
    assert desk.state(job_id) == "cancelled"
    assert check_invariants(desk.database) == []


def test_transaction_commits_behind_the_fence_or_not_at_all(desk: Desk) -> None:
    """Checkpoints and follow-up jobs commit with the lease held; a stale attempt writes neither."""
    gate, second = desk.gate(), desk.gate()
    refused: list[bool] = []

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "child":
            return
        with job.transaction() as session:
            job.save_checkpoint(session, "step", {"attempt": job.attempt})
            enqueue(session, Task(name="child"))
        if job.attempt == 2:
            second.wait(job)
        if job.attempt == 1:
            gate.wait(job)
            with pytest.raises(LeaseLost) as caught, job.transaction() as session:
                job.save_checkpoint(session, "step", "stale")
            refused.append(caught.value.refused)
            raise caught.value

    running = desk.start(handler(handle, lease=5))
    [job_id] = desk.submit("parent")
    gate.holds(1)
    assert desk.database.value("SELECT value FROM {s}.checkpoints") == {"attempt": 1}
    desk.take_lease(job_id)
    second.holds(1)
    gate.open()
    until(lambda: running.counted("stale_writes_refused") == 1)
    assert refused == [True]
    assert desk.database.value("SELECT value FROM {s}.checkpoints") == {"attempt": 2}
    second.open()
    desk.done(2)


def test_checkpoint_in_a_session_of_ones_own_is_fenced_too(desk: Desk) -> None:
    """`save_checkpoint` checks the fence itself, so that a foreign session can't smuggle a stale value in."""
    gate, second = desk.gate(), desk.gate()
    engine = desk.database.engine()
    refused = threading.Event()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 2:
            second.wait(job)
            return
        gate.wait(job)
        with sa.orm.Session(engine) as session, session.begin(), pytest.raises(LeaseLost):
            job.save_checkpoint(session, "step", "stale")
        refused.set()

    desk.start(handler(handle, lease=5))
    [job_id] = desk.submit("a")
    gate.holds(1)
    desk.take_lease(job_id)
    second.holds(1)
    gate.open()
    assert refused.wait(30)
    second.open()
    desk.done(1)
    assert desk.database.count("checkpoints") == 0


def test_transaction_that_swallows_an_error_or_ends_itself_is_refused(desk: Desk) -> None:
    """A block in `job.transaction()` that PostgreSQL would silently roll back raises instead."""

    def swallow(session: Any) -> None:
        with contextlib.suppress(sa.exc.DBAPIError):
            session.execute(sa.text("SELECT 1 / 0"))

    def block(job: Any, name: str, spoil: Any) -> None:
        with job.transaction() as session:
            job.save_checkpoint(session, name, 1)
            spoil(session)

    def handle(job: Any, payload: Any) -> None:
        with pytest.raises(RuntimeError, match="swallowed"):
            block(job, "a", swallow)
        with pytest.raises(RuntimeError, match="begin or end"):
            block(job, "b", lambda session: session.execute(sa.text("COMMIT")))
        with pytest.raises(RuntimeError, match="ended"):
            block(job, "c", lambda session: session.rollback())
        block(job, "d", lambda _session: None)

    desk.start(handler(handle))
    desk.submit("a")
    desk.done(1)
    assert desk.database.rows("SELECT name FROM {s}.checkpoints") == [("d",)]


def test_claim_that_lands_after_the_end_has_begun_is_handed_back(desk: Desk) -> None:
    """Jobs whose claim was on its way when the consumer was told to stop are not started, nor charged."""
    ran: list[int] = []

    def handle(job: Any, payload: Any) -> None:
        ran.append(job.attempt)

    stranger = desk.database.connect(autocommit=False)
    ids = desk.submit("a", "b", "c", "d")
    stranger.execute(desk.database.sql("SELECT 1 FROM {s}.jobs FOR UPDATE"))
    running = desk.start(handler(handle))
    waiting = """SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%/claim' AND wait_event_type = 'Lock'"""
    until(lambda: desk.database.count(waiting) == 1)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    until(running.consumer._claimer._stop.is_set)
    stranger.rollback()
    stopping.join(30)
    assert not stopping.is_alive()
    assert ran == []
    assert [desk.outcomes(job_id) for job_id in ids] == [["handed_back"]] * 4
    assert desk.database.count("jobs WHERE uncharged_attempts = 1 AND state = 'ready'") == 4
    assert check_invariants(desk.database) == []
