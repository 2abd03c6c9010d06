"""User code that never returns, and waits that are nobody's fault: a job outlives both."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import cancel
from outbox_consumer import RetryPolicy
from outbox_consumer.basis import connections
from outbox_consumer.failing.retry import plain
from support.consuming import Desk, handler, overrun
from support.database import Database
from support.invariants import check_invariants
from support.waiting import until


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, 'x')")
    session.execute(statement, {"job": job.id, "attempt": job.attempt})


def end_sessions(database: Database, purpose: str) -> None:
    """End the server's side of the open transactions, as its limit for idle ones does."""
    query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = %s AND state LIKE 'idle in transaction%%'"""
    assert int(database.value(query, f"outbox-consumer/{purpose}")) == 1


def test_overrun_that_never_leaves_its_transaction_loses_its_job(desk: Desk) -> None:
    """Once the server has ended the transaction of a handler that sits in it, the job runs again."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            with pytest.raises(sa.exc.DBAPIError), job.transaction():
                gate.wait(job)

    running = desk.start(handler(handle, lease=3, max_runtime=60), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    overrun(running)
    until(lambda: running.consumer._book.entries()[0].ending)
    end_sessions(desk.database, "handlers")
    desk.done(1, timeout_s=30)
    assert desk.outcomes(job_id) in (["retried", "succeeded"], ["lease_lost", "succeeded"])
    until(lambda: running.consumer.running() == 1)
    gate.open()
    until(lambda: running.held() == 0 and running.consumer.running() == 0)
    assert check_invariants(desk.database) == []


def test_overrun_whose_transaction_stays_open_is_not_beaten_for(desk: Desk) -> None:
    """The lease of an overrun is left to expire even while its handler's transaction keeps the row locked."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            with job.transaction():
                gate.wait(job)

    running = desk.start(handler(handle, lease=3, max_runtime=60), heartbeat_s=0.3)
    desk.submit("a")
    gate.holds(1)
    overrun(running)
    expired = "outbox WHERE phase = 'leased' AND lease_expires_at < {s}.clock() - interval '1 second'"
    until(lambda: desk.database.count(expired) == 1, within_s=30)
    gate.open()
    desk.done(1)


def test_end_behind_a_forgotten_transaction_is_tried_after_a_while(desk: Desk) -> None:
    """A handler that returns while a thread of its own sits in a transaction which the server has ended succeeds."""
    gate, inside = desk.gate(), threading.Event()

    def sit(job: Any) -> None:
        with contextlib.suppress(sa.exc.DBAPIError), job.transaction():
            inside.set()
            gate.wait(job)

    def handle(job: Any, payload: Any) -> None:
        thread = threading.Thread(target=sit, args=(job,), daemon=True)
        threads.append(thread)
        thread.start()
        assert inside.wait(30)

    threads: list[threading.Thread] = []
    desk.start(handler(handle, lease=3), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    end_sessions(desk.database, "handlers")
    desk.done(1, timeout_s=30)
    assert desk.outcomes(job_id) == ["succeeded"]
    gate.open()
    threads[0].join(30)


def test_apply_that_never_returns_loses_its_job(desk: Desk) -> None:
    """Past `max_runtime` nobody beats for an `apply`; once the server has ended its session, the job runs elsewhere."""
    gate = desk.gate()

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, result)
        if job.attempt == 1:
            gate.wait(job)

    running = desk.start(handler(apply=apply, lease=3, max_runtime=60), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    overrun(running)
    end_sessions(desk.database, "completions")
    desk.done(1, timeout_s=30)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    gate.open()
    until(lambda: running.held() == 0)
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]
    assert check_invariants(desk.database) == []


def test_lease_that_the_watch_declares_lost_is_extended_no_more(desk: Desk) -> None:
    """A handler that ignores `lost` keeps nothing: its lease expires and the job runs again beside it."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            gate.wait(job)

    running = desk.start(handler(handle, lease=3), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    gate.holds(1)
    [entry] = running.consumer._book.entries()

    def lost() -> bool:
        entry.trusted_until = 0.0
        return entry.lost

    until(lost)
    desk.done(1, timeout_s=30)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    gate.open()
    until(lambda: running.held() == 0)
    assert running.counted("leases_lost") == 1


def test_completion_that_waits_for_a_connection_costs_no_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others hold the connections for completions, an attempt waits for as long as its lease is kept."""
    monkeypatch.setattr(connections, "_POOL_TIMEOUT_S", 0.1)
    gate, waited = desk.gate(), threading.Event()

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, result)
        gate.wait(job)

    running = desk.start(handler(apply=apply, lease=5), pool_size=3, heartbeat_s=0.3)
    pool = running.consumer._connections.for_completions
    sa.event.listen(pool, "checkout", lambda *_: waited.set())
    ids = desk.submit("a", "b")
    gate.holds(1)
    until(lambda: all(entry.completing for entry in running.consumer._book.entries()))
    waited.clear()
    assert not waited.wait(0.5)
    gate.open()
    desk.done(2)
    assert [desk.outcomes(job_id) for job_id in ids] == [["succeeded"]] * 2


class Curious(RetryPolicy):
    """A policy whose code notes on which threads it runs."""

    def wait_s(self, *_: Any, **__: Any) -> float:
        """Note the thread."""
        SEEN.append(threading.current_thread().name)
        return 0.0

    def longest_wait_s(self, failures: int) -> float:
        """Note the thread."""
        return self.wait_s(failures)

    def exhausted(self, *_: Any) -> bool:
        """Note the thread."""
        return self.wait_s() > 0


SEEN: list[str] = []


def test_overrun_runs_no_code_of_a_users_policy(desk: Desk) -> None:
    """An overrun is decided by the policy's fields; its methods run on the threads of handlers alone."""
    SEEN.clear()
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "fails" and job.attempt == 1:
            raise ValueError
        if payload.name == "sits" and job.attempt == 1:
            gate.wait(job)

    curious = Curious(max_attempts=2, base=timedelta(0), cap=timedelta(0))
    running = desk.start(handler(handle, retry=curious, lease=60, max_runtime=60))
    sits, _ = desk.submit("sits", "fails")
    gate.holds(1)
    overrun(running, "sits")
    desk.done(2)
    assert desk.outcomes(sits) == ["retried", "succeeded"]
    assert SEEN
    assert {name.rpartition("-")[0] for name in SEEN} == {"outbox-handler"}


def test_plain_policy_has_the_fields_and_nothing_of_the_subclass() -> None:
    """Fields are read past properties, and a policy without any gives the default."""

    class Hiding(Curious):
        @property
        def cap(self) -> timedelta:  # type: ignore[override]
            """Note the access."""
            SEEN.append("cap")
            return timedelta(0)

        def __init__(self) -> None:
            """Set the field behind the property."""
            for name in {field.name for field in fields(RetryPolicy)} - {"cap"}:
                object.__setattr__(self, name, getattr(RetryPolicy(), name))
            vars(RetryPolicy)["cap"].__set__(self, timedelta(seconds=7))

    class Empty(RetryPolicy):
        def __init__(self) -> None:
            """Set nothing."""

    SEEN.clear()
    usual = RetryPolicy(max_attempts=3, cap=timedelta(seconds=7))
    assert plain(usual) is usual
    assert plain(Curious(max_attempts=3, cap=timedelta(seconds=7))) == usual
    assert plain(Hiding()) == RetryPolicy(cap=timedelta(seconds=7))
    assert plain(Empty()) == RetryPolicy()
    assert SEEN == []


def test_rows_that_others_hold_delay_no_neighbours_end(desk: Desk) -> None:
    """Ends whose rows somebody's open transaction keeps locked wait together, once, and not one after the other."""
    first, second = desk.gate(), desk.gate()
    running = desk.start(
        handler(lambda job, payload: (second if payload.name == "free" else first).wait(job)), concurrency=9
    )
    held = desk.submit(*(f"held-{number}" for number in range(8)))
    desk.submit("free")
    first.holds(8)
    second.holds(1)
    with desk.database.engine().connect() as others, others.begin():
        for job_id in held:
            cancel(others, job_id, by="ann", reason="no", schema=desk.database.schema)
        first.open()
        until(lambda: sum(entry.ending for entry in running.consumer._book.entries()) == 8)
        second.open()
        until(lambda: desk.states().get("succeeded", 0) == 1, within_s=8)
    desk.done(8, "cancelled")
    until(lambda: running.held() == 0)
    assert check_invariants(desk.database) == []
