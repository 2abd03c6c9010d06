"""Submitters that race on one key, at every isolation level."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import JobRef, LogicalKeyConflict, SubmissionUnresolved, enqueue, enqueue_async, enqueue_many
from outbox.submitting import job_writing
from support.database import Database
from support.jobs import Note, notes
from support.targets import BUSINESS, INSERT
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

_T = TypeVar("_T")

THREADS = 20
SERIALIZATION_FAILURE = "40001"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
every_level = pytest.mark.parametrize("level", LEVELS)
DRIVERS = [("psycopg", level) for level in LEVELS] + [("psycopg2", "REPEATABLE READ")]


def again_if_not_serializable(work: Callable[[], _T]) -> _T:
    """Run a transaction as the documentation asks of SERIALIZABLE callers: again, whole, after SQLSTATE 40001."""
    for _ in range(THREADS):
        try:
            return work()
        except sa.exc.DBAPIError as failure:
            if getattr(failure.orig, "sqlstate", None) != SERIALIZATION_FAILURE:
                raise
    return work()


@pytest.mark.parametrize(("driver", "level"), DRIVERS)
def test_twenty_submitters_of_one_key(database: Database, driver: str, level: str) -> None:
    """All get the same job, one has made it, and every business row commits, with not one connection to spare."""
    database.rows(BUSINESS)
    engine = database.keep(
        sa.create_engine(database.driver_url(driver), isolation_level=level, pool_size=THREADS, max_overflow=0)
    )
    start = threading.Barrier(THREADS)
    begun = set[int]()

    def submit(number: int) -> JobRef:
        with Session(engine) as session:
            # The snapshot is taken before anybody submits, so that above READ COMMITTED no loser can see the winner.
            session.execute(INSERT, {"id": str(number)})
            if number not in begun:
                begun.add(number)
                start.wait(30)
            ref = enqueue(session, Note(key="k"))
            session.commit()
            return ref

    def submit_until_committed(number: int) -> JobRef:
        return again_if_not_serializable(lambda: submit(number)) if level == "SERIALIZABLE" else submit(number)

    with ThreadPoolExecutor(THREADS) as pool:
        refs = list(pool.map(submit_until_committed, range(THREADS)))
    assert len({ref.id for ref in refs}) == 1
    assert sum(ref.created for ref in refs) == 1
    assert database.count("jobs") == database.count("outbox") == 1
    assert database.count("SELECT 1 FROM public.business") == THREADS


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_async_submitters_with_old_snapshots(database: Database, driver: str) -> None:
    """The look beside the transaction also works through the async drivers."""
    database.rows(BUSINESS)

    async def submit(engine: Any, number: int, start: asyncio.Barrier) -> JobRef:
        async with AsyncSession(engine) as session:
            await session.execute(INSERT, {"id": str(number)})
            await start.wait()
            ref = await enqueue_async(session, Note(key="k"))
            await session.commit()
            return ref

    async def race() -> list[JobRef]:
        url = database.driver_url(driver)
        engine = create_async_engine(url, isolation_level="REPEATABLE READ", pool_size=5, max_overflow=0)
        start = asyncio.Barrier(5)
        try:
            return await asyncio.wait_for(asyncio.gather(*(submit(engine, number, start) for number in range(5))), 30)
        finally:
            await engine.dispose()

    refs = asyncio.run(race())
    assert len({ref.id for ref in refs}) == 1
    assert sum(ref.created for ref in refs) == 1
    assert database.count("SELECT 1 FROM public.business") == 5


@every_level
def test_the_loser_gets_its_own_job_if_the_winner_rolls_back(database: Database, level: str) -> None:
    """A submitter waits for its rival's end, and a rollback frees the key for it."""
    engine = database.engine(isolation_level=level)
    with engine.connect() as winner, engine.connect() as loser, ThreadPoolExecutor(1) as pool:
        loser.execute(sa.text("SELECT 1"))
        first = enqueue(winner, Note(key="k"))
        waiting = pool.submit(enqueue, loser, Note(key="k"))
        until(lambda: database.count(WAITING))
        assert not waiting.done()
        winner.rollback()
        second = waiting.result(30)
        loser.commit()
    assert second.created
    assert second.id != first.id
    assert database.count("jobs") == database.count("outbox") == 1


@every_level
def test_an_old_snapshot_still_tells_a_conflict(database: Database, level: str) -> None:
    """A rival's job that the snapshot can't see is compared all the same, and the transaction commits afterwards."""
    database.rows(BUSINESS)
    engine = database.engine(isolation_level=level)
    with engine.connect() as old, engine.begin() as rival:
        old.execute(INSERT, {"id": "b"})
        taken = enqueue(rival, Note(key="k", body="one"))
        rival.commit()
        with pytest.raises(LogicalKeyConflict) as caught:
            enqueue(old, Note(key="k", body="two"))
        refs = enqueue_many(old, [Note(key="new"), Note(key="k", body="one"), Note(key="new 2")])
        old.commit()
    assert caught.value.job_id == taken.id
    assert [ref.created for ref in refs] == [True, False, True]
    assert refs[1].id == taken.id
    assert database.count("jobs") == 3
    assert database.count("SELECT 1 FROM public.business") == 1


@every_level
def test_batches_in_opposite_orders_do_not_deadlock(database: Database, level: str) -> None:
    """Keys are written in one order whatever the caller's, so two batches over the same keys only wait."""
    engine = database.engine(isolation_level=level)
    batch = notes(200, "same")
    start = threading.Barrier(4)
    begun = set[int]()

    def submit(number: int) -> list[JobRef]:
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT 1"))
            if number not in begun:
                begun.add(number)
                start.wait(30)
            refs = enqueue_many(connection, batch if number % 2 else batch[::-1])
            connection.commit()
            return refs if number % 2 else refs[::-1]

    def submit_until_committed(number: int) -> list[JobRef]:
        return again_if_not_serializable(lambda: submit(number)) if level == "SERIALIZABLE" else submit(number)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(submit_until_committed, range(4)))
    assert all([ref.id for ref in refs] == [ref.id for ref in answers[0]] for refs in answers)
    assert sum(ref.created for refs in answers for ref in refs) == 200
    assert database.count("jobs") == database.count("outbox") == 200


def test_a_key_that_can_never_be_read_ends_in_an_error(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the look beside the transaction finds nothing again and again, the caller is told to retry."""
    monkeypatch.setattr(job_writing, "find_committed", lambda _, __, ___, submissions: [None] * len(submissions))
    engine = database.engine(isolation_level="REPEATABLE READ")
    with engine.connect() as old, engine.connect() as rival:
        old.execute(sa.text("SELECT 1 FROM pg_class LIMIT 1"))
        enqueue(rival, Note(key="k"))
        rival.commit()
        with pytest.raises(SubmissionUnresolved):
            enqueue(old, Note(key="k"))
        assert enqueue(old, Note(key="other")).created


def test_the_look_aside_uses_no_pooled_connection(database: Database) -> None:
    """The separate connection is closed at once and never comes from the caller's pool."""
    engine = database.engine(isolation_level="REPEATABLE READ", pool_size=1, max_overflow=0, pool_timeout=1)
    rival = database.engine()
    with engine.connect() as old:
        old.execute(sa.text("SELECT 1 FROM pg_class LIMIT 1"))
        with rival.begin() as connection:
            ref = enqueue(connection, Note(key="k"))
        rival.dispose()
        assert enqueue(old, Note(key="k")).id == ref.id
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'outbox'"
        until(lambda: database.count(query) == 1)
