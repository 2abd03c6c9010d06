"""What hampers a running attempt: the database away, connections used up, rows locked, time run out."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import sqlalchemy as sa

from outbox_consumer import RetryPolicy, runtime
from support.consuming import AsyncTask, Desk, Task, async_handler, handler, overrun, through
from support.database import Database
from support.invariants import check_invariants
from support.proxy import Proxy
from support.waiting import until


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, :note)")
    session.execute(statement, {"job": job.id, "attempt": job.attempt, "note": str(result)})


def kill_backends(database: Database) -> int:
    """Terminate every backend of the consumer; return how many there were."""
    query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'outbox-consumer/%'"""
    return int(database.value(query))


def test_heartbeats_survive_the_loss_of_every_backend(desk: Desk) -> None:
    """All connections terminated, twice: the lease goes on, and the job ends as if nothing had been."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, _: gate.wait(job), write_effect, lease=5), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    for _ in range(2):
        assert kill_backends(desk.database) > 0
        expiry = desk.database.value("SELECT lease_expires_at FROM {s}.outbox")
        query = "SELECT lease_expires_at > %s + interval '1 second' FROM {s}.outbox"
        until(lambda query=query, expiry=expiry: desk.database.value(query, expiry))
    kill_backends(desk.database)
    gate.open()
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]
    assert running.counted("leases_lost") == 0


@pytest.mark.parametrize("trouble", ["down", "freeze"])
def test_database_outage_within_the_lease_is_survived(desk: Desk, db_proxy: Proxy, trouble: str) -> None:
    """A database that is away or silent for less than a lease costs nothing: same attempt, one effect."""
    gate = desk.gate()
    url = through(desk.database.url, db_proxy.port)
    running = desk.start(
        handler(lambda job, _: gate.wait(job), write_effect, lease=20), database_url=url, heartbeat_s=0.5
    )
    ids = desk.submit("a", "b")
    gate.holds(2)
    started = time.monotonic()
    getattr(db_proxy, trouble)()
    gate.open()
    until(lambda: time.monotonic() > started + 2.5)
    db_proxy.up() if trouble == "down" else db_proxy.thaw()
    desk.done(2)
    assert [desk.outcomes(job_id) for job_id in ids] == [["succeeded"]] * 2
    assert desk.database.count("SELECT 1 FROM public.effects") == 2
    until(lambda: running.held() == 0)
    assert running.counted("leases_lost") == 0


@pytest.mark.parametrize("trouble", ["down", "freeze"])
def test_database_outage_beyond_the_lease_is_told(desk: Desk, db_proxy: Proxy, trouble: str) -> None:
    """When no heartbeat gets through for a lease, the handler is told by then, even if the connection just hangs."""
    gate, told = desk.gate(), threading.Event()

    def handle(job: Any, payload: Any) -> None:
        gate.wait(job)
        if job.attempt == 1:
            assert job.lost.wait(30)
            told.set()
            job.check()

    url = through(desk.database.url, db_proxy.port)
    running = desk.start(handler(handle, lease=3), database_url=url, heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    getattr(db_proxy, trouble)()
    gate.open()
    assert told.wait(20)
    db_proxy.up() if trouble == "down" else db_proxy.thaw()
    desk.done(1)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    until(lambda: running.held() == 0)
    assert running.counted("leases_lost") == 1


def test_handlers_that_use_up_their_connections_stop_nobody_else(desk: Desk) -> None:
    """With every connection for handlers in open transactions, heartbeats and completions with `apply` go on."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "greedy":
            transactions = [job.transaction() for _ in range(4)]
            for transaction in transactions:
                transaction.__enter__()
            gate.wait(job)
            for transaction in transactions:
                transaction.__exit__(None, None, None)

    running = desk.start(handler(handle, write_effect, lease=5), concurrency=4, heartbeat_s=0.3)
    [greedy] = desk.submit("greedy")
    gate.holds(1)
    expiry = desk.database.value("SELECT lease_expires_at FROM {s}.outbox")
    desk.submit("a", "b", "c")
    desk.done(3, timeout_s=30)
    query = "SELECT lease_expires_at > %s + interval '1 second' FROM {s}.outbox"
    until(lambda: desk.database.value(query, expiry))
    gate.open()
    desk.done(4)
    assert desk.outcomes(greedy) == ["succeeded"]
    assert running.counted("leases_lost") == 0


def test_attempt_that_holds_its_own_fence_open_holds_up_no_other_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overrun whose handler sits in `job.transaction()` waits for that alone; its neighbours end meanwhile."""
    # Whoever waited behind its fence would wait for this long.
    monkeypatch.setattr(runtime, "_END_LOCK_S", 14.0)
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "sits" and job.attempt == 1:
            with job.transaction():
                gate.wait(job)

    running = desk.start(handler(handle, lease=60, max_runtime=60))
    [sits] = desk.submit("sits")
    gate.holds(1)
    overrun(running)
    until(lambda: running.consumer._book.entries()[0].ending)
    before = time.monotonic()
    desk.submit(*map(str, range(20)))
    desk.done(20)
    assert time.monotonic() - before < 10
    gate.open()
    desk.done(21)
    assert desk.outcomes(sits) in (["retried", "succeeded"], ["lease_lost", "succeeded"])


def test_row_locked_by_a_stranger_holds_up_no_other_end(desk: Desk) -> None:
    """An end whose row somebody else has locked is set aside; the others are written, and it is, once it is free."""
    gate = desk.gate()
    desk.start(handler(lambda job, payload: gate.wait(job) if payload.name == "locked" else None, lease=60))
    [locked] = desk.submit("locked")
    gate.holds(1)
    stranger = desk.database.connect(autocommit=False)
    stranger.execute(desk.database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE"))
    gate.open()
    desk.submit(*map(str, range(10)))
    desk.done(10, timeout_s=30)
    assert desk.state(locked) == "running"
    stranger.rollback()
    desk.done(11)
    assert desk.outcomes(locked) == ["succeeded"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_maximum_runtime_takes_the_job_from_its_handler(desk: Desk, kind: str) -> None:
    """An attempt past `max_runtime` is ended as such and the job runs again, though its handler still runs."""
    gate = desk.gate()
    cancelled: list[int] = []

    async def handle_async(job: Any, payload: Any) -> None:
        try:
            if job.attempt == 1:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(job.attempt)
            raise

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            gate.wait(job)

    tested = (
        handler(handle, lease=60, max_runtime=60)
        if kind == "sync"
        else async_handler(handle_async, lease=60, max_runtime=60)
    )
    running = desk.start(tested, concurrency=2)
    [job_id] = desk.submit("a", payload=Task if kind == "sync" else AsyncTask)
    overrun(running)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.last_error(job_id)[:2] == ("retryable", "max_runtime_exceeded")
    until(lambda: cancelled == ([1] if kind == "async" else []))
    gate.open()
    until(lambda: running.consumer.running() == 0)
    assert running.counted("stale_writes_refused") == 0


@pytest.mark.parametrize("overruns", [False, True])
def test_slow_apply_outlives_its_lease_and_runtime(desk: Desk, overruns: bool) -> None:
    """An `apply` that takes longer than the lease keeps its job by its own lock, and is neither lost nor overrun."""

    def apply(session: Any, job: Any, result: Any) -> None:
        if overruns:
            overrun(running)
        write_effect(session, job, result)
        session.execute(sa.text("SELECT pg_sleep(4.5)"))
        job.check()

    running = desk.start(handler(apply=apply, lease=3, max_runtime=60), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]
    assert desk.database.count("SELECT 1 FROM public.effects") == 1
    until(lambda: running.held() == 0)
    counted = {name: count for name, count in running.consumer.counters.snapshot().items() if count}
    assert counted == {"claimed": 1, "claimed_without_broker": 1, "succeeded": 1}


def test_job_past_its_deadline_is_not_tried_again(desk: Desk) -> None:
    """A failed attempt of a job whose deadline passes meanwhile leads to its end, not to another try."""

    class Late(RetryPolicy):
        def wait_s(self, *_: Any, **__: Any) -> float:
            return 8.0

    def handle(job: Any, payload: Any) -> None:
        raise ValueError

    desk.start(handler(handle, retry=Late()))
    deadline = desk.database.value("SELECT {s}.clock() + interval '6 seconds'")
    [job_id] = desk.submit("a", deadline=deadline)
    desk.done(1, "failed", timeout_s=40)
    assert desk.outcomes(job_id) == ["failed"]  # at once: the next try could not start in time
    assert desk.last_error(job_id)[:2] == ("deadline", "deadline_exceeded")
    assert check_invariants(desk.database) == []
