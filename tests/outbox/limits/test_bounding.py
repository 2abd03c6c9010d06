"""Bounds of queues: who is refused, deferred or let pass, by which figures, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import (
    BoundPolicy,
    LogicalKeyConflict,
    NameRefused,
    QueueFull,
    bound_queue,
    bound_queue_async,
    cancel,
    enqueue,
    enqueue_async,
    enqueue_many,
    list_bounds,
    list_bounds_async,
    pause,
    redrive,
    resume,
    unbound_queue,
    unbound_queue_async,
)
from outbox.database.link import Link
from outbox.joins.joining import fan_in
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import recover_leases
from outbox.leases.ending import hand_back, retry
from outbox.leases.leasing import own_claims, refuse
from outbox.reading.queue_figures import FigureKeeper, list_figures
from outbox.releasing.relaying import recover_hints
from outbox.submitting.writer import ORIGIN_KEY, Origin
from support.database import Database
from support.jobs import BROKEN, WORKER, Note, OtherNote, notes, release_all, submit, take

pytestmark = pytest.mark.usefixtures("sound")

WHO: Any = {"by": "ada", "reason": "the bank is slow"}
FULL: Any = {"backlog": 50, "capped": False, "oldest_due_s": 120.0, "drain_s": 40.0}
LARGE = 2500


def bound(database: Database, queue: str = "notes", **terms: Any) -> None:
    """Set a bound and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, queue, **({"max_backlog": 10} | terms | WHO))


def counted(database: Database, queue: str = "notes", tenant: str = "", **figures: Any) -> None:
    """Have a count just now have found these figures."""
    found = FULL | figures
    database.rows(
        "INSERT INTO {s}.queue_figures (queue, tenant, backlog, capped, scheduled, running, oldest_due_s, drain_s, "
        "counted_at) VALUES (%s, %s, %s, %s, 0, 0, %s, %s, {s}.clock()) ON CONFLICT (queue, tenant) DO UPDATE SET "
        "backlog = excluded.backlog, oldest_due_s = excluded.oldest_due_s, drain_s = excluded.drain_s, "
        "counted_at = excluded.counted_at",
        queue, tenant, found["backlog"], found["capped"], found["oldest_due_s"], found["drain_s"],
    )  # fmt: skip


@pytest.fixture
def session(database: Database) -> Any:
    """Yield a session that commits nothing by itself."""
    with Session(database.engine(poolclass=sa.NullPool)) as opened:
        yield opened


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


@pytest.mark.parametrize("tenant", [None, "default"])
def test_hints_that_nobody_takes_make_a_queue_full_by_their_age(
    database: Database, link: Link, tenant: str | None
) -> None:
    """Jobs whose hints are out wait like any others, where no consumer is there, say; a fresh one hides it not."""
    database.clock.stop()
    submit(database, 3)
    release_all(link)
    database.clock.advance(61)
    submit(database)
    bound(database, tenant=tenant, max_backlog=None, max_age=timedelta(seconds=60))
    FigureKeeper().keep(link)
    with pytest.raises(QueueFull) as full:
        submit(database)
    assert (full.value.measure, full.value.figure) == ("oldest_due_s", 61)


def _lost(link: Link, _: Database) -> None:
    assert recover_leases(link)


def _handed_back(link: Link, database: Database) -> None:
    [held] = own_claims(link, [row[0] for row in database.rows("SELECT job_id FROM {s}.outbox")], WORKER)
    assert hand_back(link, [held])


def _refused(link: Link, database: Database) -> None:
    release_all(link)
    ids = [row[0] for row in database.rows("SELECT job_id FROM {s}.outbox")]
    assert refuse(link, ids, [], pause_s=5.0)
    database.clock.advance(5)


def _resumed(link: Link, database: Database) -> None:
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "tenant", "default", **WHO)
    keeper = PauseKeeper()
    keeper.keep(link)
    database.clock.advance(3600)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", **WHO)
    assert keeper.keep(link)


def _lost_with_its_next_hint(link: Link, _: Database) -> None:
    assert recover_leases(link)
    release_all(link, rehint_after_s=0)
    assert recover_hints(link, None, busy_after_s=0)


@pytest.mark.parametrize(
    ("ran", "waits_again"),
    [
        (True, _lost),
        (True, _handed_back),
        (True, _lost_with_its_next_hint),
        (False, _refused),
        (False, _resumed),
    ],
)
def test_what_a_job_did_before_its_hint_went_out_makes_no_queue_full_by_age(
    database: Database, link: Link, ran: bool, waits_again: Any
) -> None:
    """It ran for an hour, nobody could run it, or its tenant was paused: it has not been in line for so long."""
    database.clock.stop()
    bound(database, max_backlog=None, max_age=timedelta(seconds=60))
    ids = submit(database)
    if ran:
        release_all(link)
        assert take(link, ids)
    database.clock.advance(3600)
    waits_again(link, database)
    assert release_all(link)
    ages = []
    for _ in range(2):
        FigureKeeper().keep(link)
        ages += [one.line_age_s for one in list_figures(link)]
        database.clock.advance(60)
    assert ages == [0, 60]


def test_a_hint_that_was_lost_does_not_make_its_job_young(database: Database, link: Link) -> None:
    """It goes out again and again where nobody takes it, and its job has waited since the first time."""
    database.clock.stop()
    submit(database)
    for _ in range(3):
        release_all(link, rehint_after_s=20)
        database.clock.advance(160)
        assert recover_hints(link, None, busy_after_s=0)
    release_all(link)
    FigureKeeper().keep(link)
    assert [one.line_age_s for one in list_figures(link)] == [480]


def test_the_age_is_that_of_the_five_hints_that_have_been_out_for_longest(database: Database, link: Link) -> None:
    """However many are out, no more of them are looked at; and none is younger than nothing after a clock went back."""
    database.clock.stop()
    [oldest] = submit(database)
    database.clock.advance(500)
    submit(database, 5)
    release_all(link)
    database.rows("UPDATE {s}.outbox SET last_error = 'hint lost'")
    query = "UPDATE {s}.outbox SET released_at = released_at + interval '1 s' WHERE job_id = %s"
    database.rows(query, oldest)
    database.clock.advance(60)
    FigureKeeper().keep(link)
    assert [one.oldest_due_s for one in list_figures(link)] == [60]
    database.clock.advance(-100)
    FigureKeeper().keep(link)
    assert database.value("SELECT oldest_due_s FROM {s}.queue_figures") == 0


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


@pytest.mark.parametrize("count", [1, 3, LARGE])
def test_a_call_is_deferred_in_whole(database: Database, session: Session, count: int) -> None:
    """All of it gets one later time: when the backlog will have drained; what is written is a usual job."""
    database.clock.stop()
    bound(database, policy="defer")
    counted(database)
    refs = enqueue_many(session, [*notes(count), OtherNote(key="a")], deadline=database.clock.now() + timedelta(1))
    session.commit()
    assert all(ref.created for ref in refs)
    at = database.clock.now() + timedelta(seconds=40)
    assert database.rows("SELECT DISTINCT run_at FROM {s}.jobs") == [(at,)]
    assert database.rows("SELECT DISTINCT due_at, order_key, phase FROM {s}.outbox") == [(at, at, "owed")]


@pytest.mark.parametrize("style", ["ISO, DMY", "German", "SQL, DMY", "Postgres, MDY"])
def test_a_deferred_time_is_read_alike_in_every_session(database: Database, session: Session, style: str) -> None:
    """Whatever date style and time zone the caller's session has."""
    database.clock.set(datetime(2026, 3, 4, 5, 6, 7, 890123, UTC))
    bound(database, policy="defer")
    counted(database)
    session.execute(sa.text(f"SET DateStyle = '{style}'"))
    session.execute(sa.text("SET TimeZone = 'Asia/Kolkata'"))
    enqueue(session, Note(key="a"))
    session.commit()
    assert database.value("SELECT run_at FROM {s}.jobs") == database.clock.now() + timedelta(seconds=40)


@pytest.mark.parametrize(("drain_s", "expected_s"), [(None, 60), (7200.0, 60), (0.0, 1), (30.0, 30)])
def test_no_job_is_deferred_for_longer_than_allowed(
    database: Database, session: Session, drain_s: float | None, expected_s: float
) -> None:
    """Nor for less than a second; and for the longest where nobody knows when the queue will have drained."""
    database.clock.stop()
    bound(database, policy="defer", longest=timedelta(seconds=60))
    counted(database, drain_s=drain_s)
    enqueue(session, Note(key="a"))
    session.commit()
    assert database.value("SELECT run_at FROM {s}.jobs") == database.clock.now() + timedelta(seconds=expected_s)


def test_what_could_not_run_before_its_deadline_is_refused(database: Database, session: Session) -> None:
    """A deferral past the deadline would be a job that never runs."""
    bound(database, policy="defer")
    counted(database)
    with pytest.raises(QueueFull, match="deadline"):
        enqueue(session, Note(key="a"), deadline=database.clock.now() + timedelta(seconds=30))
    assert enqueue(session, Note(key="a"), deadline=database.clock.now() + timedelta(seconds=300)).created


def test_shedding_lets_higher_priorities_pass(database: Database, session: Session) -> None:
    """Those below the given one are refused, and told why."""
    bound(database, policy="shed", keeps=5)
    counted(database)
    with pytest.raises(QueueFull, match="priority"):
        enqueue(session, Note(key="a"), priority=4)
    assert enqueue(session, Note(key="b"), priority=5).created


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


def test_the_age_of_the_oldest_is_a_bound(database: Database, session: Session) -> None:
    """Alone, or beside the backlog: either one reached is full."""
    bound(database, max_backlog=None, max_age=timedelta(seconds=120))
    counted(database, oldest_due_s=119.0)
    assert enqueue(session, Note(key="a")).created
    counted(database)
    with pytest.raises(QueueFull, match="120 s since its oldest") as caught:
        enqueue(session, Note(key="b"))
    assert (caught.value.measure, caught.value.limit) == ("oldest_due_s", 120)
    counted(database, oldest_due_s=None)
    assert enqueue(session, Note(key="b")).created


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


def test_bounds_are_audited_and_replaced(database: Database, session: Session) -> None:
    """Who and why stand in the audit with the terms; one bound per queue and tenant."""
    first = bound_queue(session, "notes", max_backlog=10, **WHO)
    second = bound_queue(session, "notes", max_age=timedelta(minutes=5), policy=BoundPolicy.SHED, keeps=3, **WHO)
    bound_queue(session, "notes", tenant="acme", max_backlog=1, **WHO)
    assert [one.tenant for one in list_bounds(session)] == [None, "acme"]
    assert list_bounds(session)[0] == second != first
    assert unbound_queue(session, "notes", **WHO) == second
    assert unbound_queue(session, "notes", **WHO) is None
    session.commit()
    audit = database.rows("SELECT action, subject, actor, reason, detail ->> 'policy' FROM {s}.audit ORDER BY id")
    assert audit == [
        ("queue.bound", "queue notes", "ada", "the bank is slow", "refuse"),
        ("queue.bound", "queue notes", "ada", "the bank is slow", "shed"),
        ("queue.bound", "queue notes", "ada", "the bank is slow", "refuse"),
        ("queue.unbound", "queue notes", "ada", "the bank is slow", None),
    ]


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({}, "max_backlog"),
        ({"max_backlog": 0}, "max_backlog"),
        ({"max_backlog": 100_001}, "max_backlog"),
        ({"max_backlog": True}, "max_backlog"),
        ({"max_backlog": "10"}, "max_backlog"),
        ({"max_age": timedelta(0)}, "max_age"),
        ({"max_age": 30}, "max_age"),
        ({"max_age": timedelta(days=31)}, "max_age"),
        ({"max_backlog": 1, "policy": "drop"}, "policy"),
        ({"max_backlog": 1, "policy": "shed", "keeps": 101}, "keeps"),
        ({"max_backlog": 1, "keeps": 5}, "keeps"),
        ({"max_backlog": 1, "policy": "defer", "keeps": -5}, "keeps"),
        ({"max_backlog": 1, "longest": timedelta(minutes=5)}, "longest"),
        ({"max_backlog": 1, "policy": "shed", "longest": timedelta(minutes=5)}, "longest"),
        ({"max_backlog": 1, "longest": timedelta(seconds=0.5)}, "longest"),
        ({"max_backlog": 1, "tenant": ""}, "tenant"),
        ({"max_backlog": 1, "reason": ""}, "reason"),
    ],
)
def test_terms_out_of_bounds_are_refused(session: Session, terms: dict[str, Any], field: str) -> None:
    """Each by name, before any SQL."""
    with pytest.raises(NameRefused) as caught:
        bound_queue(session, "notes", **(WHO | terms))
    assert caught.value.field == field
    assert not session.in_transaction()


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


@given(st.text("abcdefgh'\"{}[]", min_size=1, max_size=10), st.none() | st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_error_says_what_is_known(tenant: str, drain_s: float | None, age_s: float) -> None:
    """Whatever the figures, one line with queue, tenant and limit."""
    error = QueueFull(
        queue="q", tenant=tenant, measure="backlog", figure=7, limit=5, policy="refuse", age_s=age_s, drain_s=drain_s
    )
    assert repr(tenant) in str(error)
    assert "limit 5" in str(error)
    assert "\n" not in str(error)
    assert ("nothing of it ends" in str(error)) == (drain_s is None)
