"""Cancel: before the claim it never runs; later, whichever commits first wins."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import JobNotFound, JobState, NameRefused, cancel, cancel_async, redrive
from outbox.database.link import Link
from outbox.leases.ending import complete, complete_within, retry
from outbox.leases.leasing import heartbeat, hold_fence
from support.database import Database
from support.jobs import BROKEN, dead, history, look, release_all, running, submit, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_waiting_job_never_runs(database: Database, link: Link, driver: str, *, released: bool) -> None:
    """After a cancel, no hint and no claim finds the job; who and why stand in the job and in the audit."""
    (job_id,) = submit(database)
    if released:
        release_all(link)
    engine = database.keep(sa.create_engine(database.driver_url(driver)))
    with Session(engine) as session:
        view = cancel(session, job_id, by="ann@example", reason="not needed")
        session.commit()
    assert (view.state, view.owed) == (JobState.CANCELLED, None)
    assert (view.cancel_requested_by, view.cancel_reason) == ("ann@example", "not needed")
    assert view.cancel_requested_at == view.finished_at
    release_all(link)
    assert take(link, [job_id]) == []
    audit = database.rows("SELECT actor, action, subject, reason FROM {s}.audit")
    assert audit == [("ann@example", "job.cancel", str(job_id), "not needed")]
    assert view.cancelled_after is not None
    assert view.cancelled_after.sentence == "nothing had started"


def test_a_redrive_in_between_comes_first(database: Database, link: Link, engine: sa.Engine) -> None:
    """A job that had failed when it was to be held, and is ready by the time of the answer, is cancelled yet."""
    [job_id] = dead(database, link)
    again: list[UUID] = []

    @sa.event.listens_for(engine, "after_cursor_execute")
    def put_back(*told: Any) -> None:
        if "FOR UPDATE" in told[2] and not again:
            again.append(job_id)
            with database.engine(poolclass=sa.NullPool).begin() as other:
                redrive(other, job_id, by="you", reason="mended")

    with engine.begin() as connection:
        view = cancel(connection, job_id, by="me", reason="wrong")
    assert (view.won, view.state, again) == (True, JobState.CANCELLED, [job_id])


def test_a_running_job_loses_its_lease(database: Database, link: Link, engine: sa.Engine) -> None:
    """From the cancel's commit the worker's heartbeat says lost and its completion changes nothing."""
    (mine,) = running(database, link)
    with engine.begin() as connection:
        cancel(connection, mine.lease.job_id, by="me", reason="enough")
    assert not heartbeat(link, [mine.lease])[0].owned
    assert complete(link, [mine.lease]) == set()
    assert history(database, mine.lease.job_id) == [(1, "cancelled")]
    assert look(database, mine.lease.job_id).state is JobState.CANCELLED


def test_a_rolled_back_cancel_never_was(database: Database, link: Link, engine: sa.Engine) -> None:
    """The cancel belongs to the caller's transaction."""
    (mine,) = running(database, link)
    with engine.connect() as connection:
        cancel(connection, mine.lease.job_id, by="me", reason="enough")
        connection.rollback()
    assert complete(link, [mine.lease])
    assert database.count("audit") == 0


def test_an_ended_job_stays_as_it_is(database: Database, link: Link, engine: sa.Engine) -> None:
    """Cancelling a succeeded or cancelled job returns it unchanged and audits nothing more."""
    mine, other = running(database, link, 2)
    complete(link, [mine.lease])
    with engine.begin() as connection:
        assert cancel(connection, mine.lease.job_id, by="me", reason="late").state is JobState.SUCCEEDED
        first = cancel(connection, other.lease.job_id, by="me", reason="first")
        second = cancel(connection, other.lease.job_id, by="you", reason="second")
        assert (first.won, second.won) == (True, False)
        assert second == first.model_copy(update={"won": False})
    assert database.count("audit") == 1


def test_an_unknown_job_is_an_error(engine: sa.Engine) -> None:
    """A wrong id is told, and the transaction stays healthy."""
    with engine.begin() as connection:
        with pytest.raises(JobNotFound):
            cancel(connection, uuid4(), by="me", reason="x")
        connection.execute(sa.text("SELECT 1"))


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 2001, "\x00", "\x1b[31m", None])
@pytest.mark.parametrize("field", ["by", "reason"])
def test_who_and_why_are_checked(engine: sa.Engine, field: str, bad: Any) -> None:
    """Empty, unprintable and endless texts are refused before any SQL."""
    with engine.connect() as connection:
        with pytest.raises(NameRefused, match=field):
            cancel(connection, uuid4(), **({"by": "me", "reason": "x"} | {field: bad}))
        assert not connection.in_transaction()


def test_the_completion_that_commits_first_wins(database: Database, link: Link, engine: sa.Engine) -> None:
    """A cancel waits for a completion under way and then finds a succeeded job."""
    (mine,) = running(database, link)
    with engine.connect() as worker, engine.connect() as operator, ThreadPoolExecutor(1) as pool:
        assert complete_within(worker, database.statements, mine.lease)
        waiting = pool.submit(cancel, operator, mine.lease.job_id, by="me", reason="late")
        until(lambda: database.count(WAITING))
        worker.commit()
        assert waiting.result(30).state is JobState.SUCCEEDED
        operator.commit()
    assert database.count("audit") == 0


def test_the_cancel_that_commits_first_wins(database: Database, link: Link, engine: sa.Engine) -> None:
    """A completion waits for a cancel under way and then changes nothing."""
    (mine,) = running(database, link)
    with engine.connect() as worker, engine.connect() as operator, ThreadPoolExecutor(1) as pool:
        cancel(operator, mine.lease.job_id, by="me", reason="enough")
        waiting = pool.submit(complete_within, worker, database.statements, mine.lease)
        until(lambda: database.count(WAITING))
        operator.commit()
        assert not waiting.result(30)
        worker.rollback()
    assert look(database, mine.lease.job_id).state is JobState.CANCELLED


def test_a_cancel_waits_for_a_fenced_transaction(database: Database, link: Link, engine: sa.Engine) -> None:
    """What a worker writes behind the fence commits before a cancel can end the job."""
    (mine,) = running(database, link)
    with engine.connect() as worker, engine.connect() as operator, ThreadPoolExecutor(1) as pool:
        assert hold_fence(worker, database.statements, mine.lease)
        waiting = pool.submit(cancel, operator, mine.lease.job_id, by="me", reason="enough")
        until(lambda: database.count(WAITING))
        assert heartbeat(link, [mine.lease])[0].owned
        worker.commit()
        assert waiting.result(30).state is JobState.CANCELLED
        operator.commit()


def test_a_cancel_that_waited_for_a_claim_comes_after_it(database: Database, link: Link, engine: sa.Engine) -> None:
    """The instant of a cancel is taken once the job is held, so that no attempt ends before it began."""
    (job_id,) = submit(database)
    release_all(link)
    lock = database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE")
    terms = {"kinds": ["test.note"], "versions": [1], "leases_s": [60.0], "max_attempts": [3], "max_ages_s": [None]}
    worker = {
        "queues": None,
        "key_ids": [],
        "handler_versions": ["1"],
        "owner": "w",
        "host": "h",
        "worker_version": "1",
        "timed": False,
    }
    with engine.connect() as operator, ThreadPoolExecutor(1) as pool:
        with link.transaction() as claimer:
            claimer.execute(lock)
            waiting = pool.submit(cancel, operator, job_id, by="me", reason="enough")
            until(lambda: database.count(WAITING))
            assert database.statements.run(claimer, "claim", job_ids=[job_id], **terms, **worker)
        assert waiting.result(30).state is JobState.CANCELLED
        operator.commit()
    assert history(database, job_id) == [(1, "cancelled")]
    assert database.count("attempts WHERE ended_at >= claimed_at") == 1


def keep(database: Database, job_id: UUID) -> None:
    """Write checkpoints and effects of a job by hand."""
    database.rows(
        "INSERT INTO {s}.checkpoints SELECT %s, name, 1, '1', {s}.clock() FROM unnest(ARRAY['b', 'a']) AS n(name)",
        job_id,
    )
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
        "SELECT %s, name, state, '', 1, {s}.clock(), CASE WHEN state = 'confirmed' THEN {s}.clock() END "
        "FROM unnest(ARRAY['mail', 'charge', 'book', 'post'], ARRAY['uncertain', 'confirmed', "
        "'confirmed', 'not_done']) "
        "AS e(name, state)",
        job_id,
    )


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_the_record_says_what_had_happened(database: Database, link: Link, level: str) -> None:
    """Attempts, checkpoints and effects that committed before the cancel stand in its answer, the row and the audit;
    those that a worker wrote while the cancel waited for its fenced transaction are among them.
    """
    (mine,) = running(database, link)
    workers, operators = database.engine(), database.engine(isolation_level=level)
    with workers.connect() as worker, operators.connect() as operator, ThreadPoolExecutor(1) as pool:
        operator.execute(sa.text("SELECT 1"))
        operator.exec_driver_sql("SELECT count(*) FROM outbox.jobs")  # the snapshot, where there is only one
        assert hold_fence(worker, database.statements, mine.lease)
        waiting = pool.submit(cancel, operator, mine.lease.job_id, by="me", reason="enough")
        until(lambda: database.count(WAITING))
        keep(database, mine.lease.job_id)
        worker.commit()
        result = waiting.result(30)
        operator.commit()
    after = {
        "attempts": 1,
        "checkpoints": ["a", "b"],
        "effects": {"confirmed": ["book", "charge"], "uncertain": ["mail"]},
    }
    assert result.cancelled_after is not None
    assert result.cancelled_after.model_dump(mode="json") == after | {"superseded_by": None}
    assert result.cancelled_after.sentence == (
        "1 attempt had begun; checkpoints: a, b; effects confirmed: book, charge; effects uncertain: mail"
    )
    assert database.value("SELECT cancelled_after FROM {s}.jobs") == after
    assert database.value("SELECT detail FROM {s}.audit") == {"after": after}
    assert look(database, mine.lease.job_id).cancelled_after == result.cancelled_after


def test_a_job_with_endless_checkpoints_is_cancelled_all_the_same(database: Database, engine: sa.Engine) -> None:
    """The record names a hundred of a kind."""
    (job_id,) = submit(database)
    database.rows(
        "INSERT INTO {s}.checkpoints SELECT %s, n::text, 1, '1', {s}.clock() FROM generate_series(1, 500) AS n", job_id
    )
    with engine.begin() as connection:
        after = cancel(connection, job_id, by="me", reason="x").cancelled_after
    assert after is not None
    assert len(after.checkpoints) == 100


def test_a_job_that_waits_for_its_retry_is_not_tried_again(database: Database, link: Link, engine: sa.Engine) -> None:
    """A cancel reaches a job between two attempts, and the record tells of the first."""
    (mine,) = running(database, link)
    retry(link, [(mine.lease, BROKEN, 600.0)])
    with engine.begin() as connection:
        after = cancel(connection, mine.lease.job_id, by="me", reason="enough").cancelled_after
    assert after is not None
    assert after.attempts == 1
    database.clock.advance(700)
    assert release_all(link) == []
    assert history(database, mine.lease.job_id) == [(1, "retried")]


def test_async_callers_cancel_too(database: Database) -> None:
    """Through asyncpg, on a session and on a connection, with the same answers."""
    one, other = submit(database, 2)

    async def both() -> list[bool]:
        engine = create_async_engine(database.driver_url("asyncpg"), poolclass=sa.NullPool)
        async with AsyncSession(engine) as session, session.begin():
            results = [await cancel_async(session, one, by="me", reason="x")]
        async with engine.begin() as connection:
            results += [await cancel_async(connection, job, by="me", reason="x") for job in (one, other)]
        return [result.won for result in results]

    assert asyncio.run(both()) == [True, False, True]
    with pytest.raises(TypeError, match="cancel_async takes"):
        asyncio.run(cancel_async(database.engine(), one, by="me", reason="x"))  # type: ignore[arg-type]
