"""Bounds of queues: who is refused or let pass, by which figures, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import (
    LogicalKeyConflict,
    QueueFull,
    bound_queue_async,
    cancel,
    enqueue,
    enqueue_async,
    enqueue_many,
    list_bounds_async,
    redrive,
    unbound_queue_async,
)
from outbox.database.link import Link
from outbox.joins.joining import fan_in
from outbox.keeping.time import recover_leases
from outbox.leases.ending import retry
from outbox.submitting.writer import ORIGIN_KEY, Origin
from support.bounds import LARGE, WHO, bound, counted
from support.database import Database
from support.jobs import BROKEN, Note, OtherNote, notes, release_all, submit, take

pytestmark = pytest.mark.usefixtures("sound")


def test_a_full_queue_refuses_with_all_that_is_known(database: Database, session: Session) -> None:
    """The error names queue, figure, limit, age and drain time; nothing is written, and the transaction goes on."""
    bound(database)
    counted(database)
    database.clock.advance(3)
    session.execute(sa.text("CREATE TABLE public.mine (n integer)"))
    with pytest.raises(QueueFull) as caught:
        enqueue(session, Note(key="a"))
    error = caught.value
    assert (error.queue, error.tenant, error.measure, error.figure, error.limit) == ("notes", None, "backlog", 50, 10)
    assert (error.policy, error.drain_s, error.code) == ("refuse", 40, "queue_full")
    assert error.age_s == pytest.approx(3, abs=2)
    for part in ("'notes'", "50 due jobs", "limit 10", "about 40 s", "outbox queues bound"):
        assert part in str(error)
    session.execute(sa.text("INSERT INTO public.mine VALUES (1)"))
    assert enqueue(session, OtherNote(key="a")).created
    session.commit()
    assert database.count("jobs") == 1
    assert database.value("SELECT n FROM public.mine") == 1
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_every_driver_and_level_is_refused_alike(database: Database, driver: str, level: str) -> None:
    """Single jobs and batches; the transaction stays usable."""
    pytest.importorskip(driver)
    bound(database)
    counted(database)
    engine = database.keep(sa.create_engine(database.driver_url(driver), isolation_level=level))
    with engine.begin() as connection:
        for few in (notes(1), notes(3), notes(LARGE)):
            with pytest.raises(QueueFull):
                enqueue_many(connection, few)
        with pytest.raises(QueueFull):
            enqueue(connection, Note(key="a"))
        assert enqueue(connection, OtherNote(key="a")).created
    assert database.count("jobs") == 1


async def _async_refusal(url: sa.URL) -> None:
    engine = create_async_engine(url)
    async with AsyncSession(engine) as opened:
        await bound_queue_async(opened, "notes", max_backlog=10, **WHO)
        assert [one.queue for one in await list_bounds_async(opened)] == ["notes"]
        with pytest.raises(QueueFull):
            await enqueue_async(opened, Note(key="a"))
        assert await unbound_queue_async(opened, "notes", **WHO) is not None
        assert (await enqueue_async(opened, Note(key="a"))).created
        await opened.commit()
    await engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_async_twins_are_refused_alike(database: Database, driver: str) -> None:
    """Bounds are set, listed, heeded and taken away by them, too."""
    pytest.importorskip(driver)
    counted(database)
    asyncio.run(_async_refusal(database.driver_url(driver)))


def test_a_key_that_has_its_job_is_not_refused(database: Database, session: Session) -> None:
    """A repeat gives the job, other arguments are a conflict, and one new key refuses the whole call."""
    ids = submit(database, payloads=[Note(key="a"), Note(key="b")])
    bound(database)
    counted(database)
    ref = enqueue(session, Note(key="a"))
    assert (ref.id, ref.created) == (ids[0], False)
    assert [one.id for one in enqueue_many(session, [Note(key="b"), Note(key="a")])] == [ids[1], ids[0]]
    with pytest.raises(LogicalKeyConflict):
        enqueue(session, Note(key="a", body=1))
    with pytest.raises(QueueFull):
        enqueue_many(session, [Note(key="a"), Note(key="c")])
    assert database.count("jobs") == 2


@pytest.mark.parametrize("count", [1, 3, LARGE])
def test_a_call_is_refused_in_whole(database: Database, session: Session, count: int) -> None:
    """One job of a full queue among others keeps all from being written, in however many statements."""
    bound(database)
    counted(database)
    with pytest.raises(QueueFull):
        enqueue_many(session, [*(OtherNote(key=str(number)) for number in range(count)), Note(key="a")])
    session.commit()
    assert database.count("jobs") == database.count("outbox") == 0


def test_a_tenants_bound_is_its_own(database: Database, session: Session) -> None:
    """It refuses that tenant and no other; the queue's own bound holds for all."""
    bound(database, tenant="acme")
    counted(database, tenant="acme")
    counted(database, backlog=5)
    with pytest.raises(QueueFull, match="tenant 'acme'") as caught:
        enqueue(session, Note(key="a"), tenant="acme")
    assert caught.value.tenant == "acme"
    assert enqueue(session, Note(key="a")).created
    bound(database, max_backlog=5)
    with pytest.raises(QueueFull):
        enqueue(session, Note(key="b"))


@pytest.mark.parametrize("figures", [{"backlog": 9}, {"age": 121}, {"age": -121}, None])
def test_a_queue_that_is_not_known_to_be_full_takes_jobs(
    database: Database, session: Session, figures: dict[str, int] | None
) -> None:
    """Below the bound, where the figures are too old or of a clock that went back, and where there are none."""
    bound(database)
    if figures is not None:
        age = figures.pop("age", 0)
        counted(database, **figures)
        database.clock.advance(age)
    assert enqueue(session, Note(key="a")).created


def test_jobs_for_later_are_not_refused(database: Database, session: Session) -> None:
    """They are no part of what waits now; a time that has come makes no exception."""
    bound(database)
    counted(database)
    assert enqueue(session, Note(key="a"), run_at=database.clock.now() + timedelta(minutes=1)).created
    with pytest.raises(QueueFull):
        enqueue(session, Note(key="b"), run_at=database.clock.now() - timedelta(minutes=1))
    assert fan_in(session, [], Note(key="c")).created


def test_a_handlers_own_queue_is_not_refused(database: Database, session: Session) -> None:
    """Else a full queue whose jobs add to it would never drain; other queues refuse its follow-ups."""
    [job_id] = submit(database, 1)
    for queue in ("notes", "others"):
        bound(database, queue)
        counted(database, queue)
    session.info[ORIGIN_KEY] = Origin(job_id, None, "notes")
    assert enqueue(session, Note(key="a")).created
    assert len(enqueue_many(session, notes(LARGE))) == LARGE
    with pytest.raises(QueueFull):
        enqueue(session, OtherNote(key="a"))


def test_what_is_there_already_is_never_refused(database: Database, link: Link) -> None:
    """Retries, recovered leases and redrives put jobs back whatever the bound says."""
    ids = submit(database, 3)
    release_all(link)
    first, *_ = take(link, ids[:2])
    bound(database)
    counted(database)
    assert retry(link, [(first.lease, BROKEN, 0.0)])
    database.rows(
        "UPDATE {s}.outbox SET lease_expires_at = {s}.clock() - interval '1 s', due_at = {s}.clock() "
        "WHERE phase = 'leased'"
    )
    assert len(recover_leases(link)) == 1
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, ids[2], by="ada", reason="no")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        assert redrive(connection, [ids[2]], by="ada", reason="yes").redriven
    assert database.count("outbox WHERE phase = 'owed'") == 3
