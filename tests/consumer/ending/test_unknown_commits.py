"""Commits whose answer never comes: the outcome is found out, never guessed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partialmethod
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from outbox_consumer import RetryableError, TerminalError
from outbox_consumer.basis.connections import Connections
from outbox_consumer.holding.suspects import Suspects
from support.answer_proxy import AnswerProxy
from support.consuming import Desk, handler, through
from support.database import Database
from support.invariants import check_invariants
from support.proxy import Proxy
from support.waiting import until


@pytest.fixture
def proxy(database: Database) -> Iterator[AnswerProxy]:
    """Yield a proxy in front of this test's database that can keep an answer to itself."""
    url = sa.make_url(database.url)
    with AnswerProxy(url.host or "127.0.0.1", url.port or 5432) as proxy:
        yield proxy


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, 'x')")
    session.execute(statement, {"job": job.id, "attempt": job.attempt})


def test_commit_of_an_apply_whose_answer_is_lost_counts_once(desk: Desk, proxy: AnswerProxy) -> None:
    """The commit took effect though nobody was told: the job is found succeeded, and `apply`'s effect stands once."""
    seen: list[int] = []

    def apply(session: Any, job: Any, result: Any) -> None:
        seen.append(job.attempt)
        write_effect(session, job, result)
        if len(seen) == 1:
            proxy.arm(b"COMMIT")

    running = desk.start(handler(apply=apply, lease=5), database_url=through(desk.database.url, proxy.port))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert proxy.swallowed.wait(20)
    until(lambda: running.counted("succeeded") == 1)
    assert running.counted("commits_resolved") == 1
    assert running.counted("stale_writes_refused") == 0
    assert desk.outcomes(job_id) == ["succeeded"]
    assert desk.database.count("SELECT 1 FROM public.effects") == 1
    assert check_invariants(desk.database) == []


def test_apply_cut_before_its_commit_runs_again_within_the_attempt(desk: Desk, proxy: AnswerProxy) -> None:
    """A connection lost before the commit leaves nothing; the same attempt applies again, once."""

    def apply(session: Any, job: Any, result: Any) -> None:
        if not proxy.swallowed.is_set():
            proxy.arm(b"public.effects")
        write_effect(session, job, result)

    running = desk.start(handler(apply=apply, lease=5), database_url=through(desk.database.url, proxy.port))
    [job_id] = desk.submit("a")
    desk.done(1)
    until(lambda: running.counted("succeeded") == 1)
    assert running.counted("commits_resolved") == 0
    assert desk.outcomes(job_id) == ["succeeded"]
    assert desk.database.count("SELECT 1 FROM public.effects") == 1


ENDS: dict[str, tuple[Any, bytes, str, list[str], str]] = {
    "complete": (None, b"state = 'succeeded'", "succeeded", ["succeeded"], "succeeded"),
    "retry": (RetryableError, b"'handed_back'", "succeeded", ["retried", "succeeded"], "retried"),
    "fail": (TerminalError, b"state = 'failed', lease_token = NULL", "failed", ["failed"], "failed"),
}


@pytest.mark.parametrize("end", ENDS)
def test_batched_end_whose_answer_is_lost_is_found_out(desk: Desk, proxy: AnswerProxy, end: str) -> None:
    """A completion, a retry and a failure without their answers are each recognised as written, and counted once."""
    error, marker, state, outcomes, counter = ENDS[end]

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            proxy.arm(marker)
            if error is not None:
                raise error("x")

    running = desk.start(handler(handle, lease=5), database_url=through(desk.database.url, proxy.port))
    [job_id] = desk.submit("a")
    desk.done(1, state)
    assert proxy.swallowed.wait(20)
    until(lambda: running.counted("commits_resolved") == 1)
    assert running.counted(counter) == 1
    assert running.counted("stale_writes_refused") == 0
    assert desk.outcomes(job_id) == outcomes
    assert check_invariants(desk.database) == []


def test_claim_that_takes_effect_after_its_connection_is_lost_is_found(
    desk: Desk, db_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that the server finishes after the cut is asked about until it shows; others are claimed meanwhile."""
    # The claim waits for the row for as long as a statement may take, so that there is time for the others.
    monkeypatch.setattr(Connections, "link", partialmethod(Connections.link, lock_s=14))
    stranger = desk.database.connect(autocommit=False)
    ids = desk.submit("a", "b")
    stranger.execute(desk.database.sql("SELECT 1 FROM {s}.jobs FOR UPDATE"))
    running = desk.start(handler(lease=60), database_url=through(desk.database.url, db_proxy.port))
    waiting = """SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%/claim' AND wait_event_type = 'Lock'"""
    until(lambda: desk.database.count(waiting) == 1)
    db_proxy.cut()
    desk.submit("c")
    desk.done(1, timeout_s=12)
    assert desk.database.count(waiting) == 1
    stranger.rollback()
    desk.done(3, timeout_s=30)
    assert [desk.outcomes(job_id) for job_id in ids] == [["handed_back", "succeeded"]] * 2
    until(lambda: running.counted("succeeded") == 3)
    assert running.counted("handed_back") == 2
    assert check_invariants(desk.database) == []


def test_suspects_are_asked_about_now_and_then_until_their_time_is_over() -> None:
    """Jobs are asked about at once, then every second, and dropped when settled or when their time is over."""
    suspects = Suspects(for_s=3.0)
    found, forgotten = uuid4(), uuid4()
    suspects.add([found, forgotten], 10.0)
    assert set(suspects.due(10.0)) == {found, forgotten}
    suspects.asked(10.0)
    assert suspects.due(10.9) == []
    assert set(suspects.due(11.0)) == {found, forgotten}
    suspects.settle([found])
    suspects.asked(12.9)
    assert suspects.due(14.0) == [forgotten]
    suspects.asked(14.0)
    assert len(suspects) == 0


def test_claim_whose_answer_is_lost_is_handed_back_uncharged(desk: Desk, proxy: AnswerProxy) -> None:
    """Leases that a claim gave without anybody knowing are found and handed back at once; no attempt is charged."""
    runs: list[int] = []
    lock = threading.Lock()

    def handle(job: Any, payload: Any) -> None:
        with lock:
            runs.append(job.charged)

    ids = desk.submit("a", "b", "c")
    proxy.arm(b"lease_owner = ")
    running = desk.start(handler(handle, lease=30), database_url=through(desk.database.url, proxy.port))
    desk.done(3, timeout_s=20)
    assert proxy.swallowed.is_set()
    assert [desk.outcomes(job_id) for job_id in ids] == [["handed_back", "succeeded"]] * 3
    assert runs == [1, 1, 1]
    assert desk.database.count("jobs WHERE uncharged_attempts = 1") == 3
    assert running.counted("handed_back") == 3
    assert desk.database.count("attempts WHERE error_code = 'claim_unanswered'") == 3
    assert check_invariants(desk.database) == []
