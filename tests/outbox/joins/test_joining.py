"""A job that waits for a set of others: it starts exactly once, whichever of them ends last."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from outbox import (
    DeadFilter,
    JobNotFound,
    JobState,
    NameRefused,
    RedriveRefused,
    StateChanged,
    cancel,
    enqueue_many,
    fan_in,
    fan_in_async,
    get_job,
    preview_redrive,
    redrive,
)
from outbox.database.link import Link
from outbox.explaining.explaining import explain_job
from outbox.joins.keeping import JoinWatch
from outbox.keeping.time import expire_deadlines
from outbox.leases.ending import complete, fail
from outbox.reading.jobs import database_time, job_tree
from outbox_schemas import Reason
from support.database import Database
from support.jobs import BROKEN, Note, OtherNote, look, notes, release_all, running, submit, take
from support.sets import THEN, due, ids_of, wait_for

pytestmark = pytest.mark.usefixtures("sound")


@pytest.mark.parametrize("last", [0, 1, 2])
def test_it_starts_when_the_last_one_has_succeeded(database: Database, link: Link, last: int) -> None:
    """Whichever that is; before, it stands there as a job that waits, and says for how many."""
    claimed = running(database, link, 3)
    job_id = wait_for(database, ids_of(claimed), max_attempts=7, tenant="t", priority=5)
    assert due(link) == []
    why = explain_job(link, look(database, job_id))
    assert (why.code, why.text) == (Reason.JOBS_AWAITED, "the jobs of its set: 3 still to end")
    complete(link, [item.lease for number, item in enumerate(claimed) if number != last])
    assert due(link) == []
    complete(link, [claimed[last].lease])
    assert due(link) == [job_id]
    assert due(link) == []
    view = look(database, job_id)
    assert (view.state, view.max_attempts, view.tenant, view.priority) == (JobState.READY, 7, "t", 5)
    assert database.rows("SELECT outcome, members FROM {s}.joins") == [("started", 3)]
    assert database.rows("SELECT DISTINCT seen FROM {s}.join_members") == [("succeeded",)]


@pytest.mark.parametrize("end", ["fail", "cancel"])
@pytest.mark.parametrize("on", ["succeeded", "ended"])
def test_what_a_failure_means(database: Database, link: Link, engine: sa.Engine, end: str, on: Any) -> None:
    """For "ended" any end will do; for "succeeded" a failed or cancelled job keeps the other waiting."""
    good, bad = running(database, link, 2)
    job_id = wait_for(database, ids_of([good, bad]), on=on)
    complete(link, [good.lease])
    if end == "fail":
        fail(link, [(bad.lease, BROKEN)])
    else:
        with engine.begin() as connection:
            cancel(connection, bad.lease.job_id, by="me", reason="x")
    assert due(link) == ([job_id] if on == "ended" else [])
    assert look(database, job_id).state is JobState.READY
    if on == "succeeded":
        state = {"fail": "failed", "cancel": "cancelled"}[end]
        why = explain_job(link, look(database, job_id))
        assert why.code is Reason.SET_UNMET
        assert why.text.startswith("a person: 1 of the 2 jobs of its set had to succeed and has not (test.note ")
        assert why.text.endswith(f" {bad.lease.job_id}: {state})")
        assert why.also == ()
        awaited = why.awaited
        assert awaited is not None
        assert (awaited.until, awaited.members, awaited.left, awaited.stopped) == ("succeeded", 2, 1, 1)
        assert [(job.job_id, job.state, job.stopped) for job in awaited.shown] == [(bad.lease.job_id, state, True)]


def test_a_redrive_that_succeeds_lets_it_go_on(database: Database, link: Link, engine: sa.Engine) -> None:
    """A member that has failed is tried again by a person; with its success the set is complete."""
    (claimed,) = running(database, link)
    member = claimed.lease.job_id
    job_id = wait_for(database, [member])
    fail(link, [(claimed.lease, BROKEN)])
    assert due(link) == []
    with engine.begin() as connection:
        token = preview_redrive(connection, job_ids=[member]).token
        redrive(connection, job_ids=[member], acknowledge=token, by="me", reason="mended")
    assert due(link) == []
    release_all(link)
    (again,) = take(link, [member])
    complete(link, [again.lease])
    assert due(link) == [job_id]


def test_nothing_to_wait_for_starts_at_once(database: Database, link: Link) -> None:
    """So do jobs that had ended before the set was made."""
    (claimed,) = running(database, link)
    complete(link, [claimed.lease])
    job_id = wait_for(database, [])
    other = wait_for(database, ids_of([claimed]), OtherNote(key="other"))
    assert set(due(link)) == {job_id, other}


def test_it_is_written_with_its_set_or_not_at_all(database: Database, link: Link, engine: sa.Engine) -> None:
    """Members of the same transaction count, whatever tells which they are; a rollback leaves nothing."""
    with engine.connect() as connection:
        refs = enqueue_many(connection, notes(2))
        fan_in(connection, refs, THEN)
        connection.rollback()
        refs = enqueue_many(connection, notes(3))
        ref = fan_in(connection, [refs[0], refs[1].id, refs[1], look_within(connection, refs[2].id)], THEN)
        assert ref.created
        connection.commit()
    assert database.count("jobs") == 4
    assert database.rows("SELECT job_id, members FROM {s}.joins") == [(ref.id, 3)]
    assert database.count("join_members") == 3
    with engine.begin() as connection:
        again = fan_in(connection, [], THEN)
    assert (again.id, again.created) == (ref.id, False)
    assert due(link) == []


def look_within(connection: sa.Connection, job_id: UUID) -> Any:
    """Return a job as a transaction sees it."""
    return get_job(connection, job_id)


def test_an_unknown_job_is_refused(database: Database, engine: sa.Engine) -> None:
    """The set would wait for ever; the transaction stays healthy and nothing is written."""
    known = submit(database)[0]
    with engine.begin() as connection:
        with pytest.raises(JobNotFound):
            fan_in(connection, [known, uuid4()], THEN)
        connection.execute(sa.text("SELECT 1"))
    assert database.count("jobs") == 1


def test_a_job_that_an_old_snapshot_cannot_see_is_known(database: Database) -> None:
    """Above READ COMMITTED, members that others have committed since are looked up beside the transaction."""
    with database.engine(isolation_level="REPEATABLE READ").begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM outbox.jobs")
        later = submit(database)
        assert fan_in(connection, later, THEN).created


@pytest.mark.parametrize(
    ("jobs", "options", "field"),
    [
        (["x"], {}, "jobs"),
        ([None], {}, "jobs"),
        ([uuid4() for _ in range(10_001)], {}, "jobs"),
        ([], {"on": "failed"}, "on"),
        ([], {"priority": 1000}, "priority"),
    ],
)
def test_bad_input_is_refused_before_any_sql(engine: sa.Engine, jobs: Any, options: Any, field: str) -> None:
    """By an error that names what is wrong."""
    with engine.connect() as connection:
        with pytest.raises(NameRefused, match=field):
            fan_in(connection, jobs, THEN, **options)
        assert not connection.in_transaction()


def test_the_earliest_start_holds_besides(database: Database, link: Link) -> None:
    """A `run_at` that lies ahead when the set is complete is kept."""
    (claimed,) = running(database, link)
    at = database_time(link) + timedelta(hours=1)
    job_id = wait_for(database, ids_of([claimed]), run_at=at)
    complete(link, [claimed.lease])
    assert due(link) == []
    assert look(database, job_id).run_at == at
    database.clock.advance(3601)
    assert due(link) == [job_id]


def test_a_deadline_ends_the_wait(database: Database, link: Link) -> None:
    """A set that isn't complete by then never starts its job, and is closed as moot."""
    (claimed,) = running(database, link)
    job_id = wait_for(database, ids_of([claimed]), deadline=database_time(link) + timedelta(minutes=5))
    database.clock.advance(301)
    assert expire_deadlines(link) == [job_id]
    complete(link, [claimed.lease])
    assert due(link) == []
    assert look(database, job_id).state is JobState.FAILED
    assert database.rows("SELECT outcome FROM {s}.joins") == [("moot",)]


def test_a_job_whose_set_was_not_complete_is_started_by_its_id_alone(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """A filter that happens to fit it is no decision to start it without its set."""
    (claimed,) = running(database, link)
    job_id = wait_for(database, ids_of([claimed]), deadline=database_time(link) + timedelta(minutes=5))
    database.clock.advance(301)
    assert expire_deadlines(link) == [job_id]
    later: dict[str, Any] = {"deadline": database_time(link) + timedelta(hours=1)}
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=DeadFilter(), **later)
        assert (seen.total, seen.refusals) == (1, {"set_unmet": 1})
        with pytest.raises(RedriveRefused, match="name it"):
            redrive(connection, where=DeadFilter(), acknowledge=seen.token, by="me", reason="x", **later)
        assert preview_redrive(connection, job_id, **later).refusals == {}
        assert list(redrive(connection, job_id, by="me", reason="x", **later).redriven) == [job_id]


@pytest.mark.parametrize("let_go", [False, True])
def test_a_preview_says_what_a_redrive_would_not_wait_for(
    database: Database, link: Link, engine: sa.Engine, let_go: bool
) -> None:
    """Whether the set is still open or was closed with its job's cancel; and the token stands for what it has seen."""
    items = running(database, link, 3)
    job_id = wait_for(database, ids_of(items))
    complete(link, [items[0].lease])
    JoinWatch().close(link)
    with engine.begin() as connection:
        cancel(connection, job_id, by="me", reason="x")
    assert not let_go or due(link) == []
    complete(link, [items[1].lease])
    with engine.begin() as connection:
        seen = preview_redrive(connection, job_id)
        assert (seen.sets_unmet, seen.sample[0]["set_left"], seen.sample[0]["set_stopped"]) == (1, 1, 0)
    fail(link, [(items[2].lease, BROKEN)])
    with engine.begin() as connection:
        with pytest.raises(StateChanged):
            redrive(connection, job_id, acknowledge=seen.token, by="me", reason="x")
        again = preview_redrive(connection, job_id)
        assert (again.sets_unmet, again.sample[0]["set_left"], again.sample[0]["set_stopped"]) == (1, 1, 1)
        redrive(connection, items[2].lease.job_id, by="me", reason="x")
    release_all(link)
    complete(link, [item.lease for item in take(link, [items[2].lease.job_id])])
    with engine.begin() as connection:
        whole = preview_redrive(connection, job_id)
        assert (whole.sets_unmet, whole.sample[0]["set_left"]) == (0, None)
        assert list(redrive(connection, job_id, acknowledge=whole.token, by="me", reason="x").redriven) == [job_id]


def test_a_cancel_ends_the_wait(database: Database, link: Link, engine: sa.Engine) -> None:
    """The job that waits can be cancelled like any other, and then never starts."""
    (claimed,) = running(database, link)
    job_id = wait_for(database, ids_of([claimed]))
    with engine.begin() as connection:
        assert cancel(connection, job_id, by="me", reason="x").won
    assert due(link) == []
    assert database.count("join_members WHERE seen IS NULL") == 0, "what nobody awaits would never be purged"
    complete(link, [claimed.lease])
    assert due(link) == []
    assert look(database, job_id).state is JobState.CANCELLED


def test_what_counted_once_counts_on(database: Database, link: Link, engine: sa.Engine) -> None:
    """A member that had ended when it was looked at, and is tried again since, doesn't keep the job waiting."""
    first, second = running(database, link, 2)
    job_id = wait_for(database, ids_of([first, second]), on="ended")
    with engine.begin() as connection:
        cancel(connection, min(ids_of([first, second])), by="me", reason="x")
    assert due(link) == []
    assert database.rows("SELECT seen FROM {s}.join_members WHERE seen IS NOT NULL") == [("cancelled",)]
    database.rows("DELETE FROM {s}.jobs WHERE state = 'cancelled'")
    database.rows("DELETE FROM {s}.attempts")
    database.rows("DELETE FROM {s}.audit")
    complete(link, [second.lease])
    assert due(link) == [job_id]


def test_a_crash_in_between_starts_it_neither_twice_nor_never(database: Database, link: Link) -> None:
    """What a keeper had done in a transaction that never committed is done by the next one."""
    (claimed,) = running(database, link)
    job_id = wait_for(database, ids_of([claimed]))
    complete(link, [claimed.lease])

    def crash() -> None:
        with link.transaction():
            assert JoinWatch().close(link) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    assert database.count("join_members WHERE seen IS NOT NULL") == 0
    assert due(link) == [job_id]


def test_a_cancel_and_a_closing_set_do_not_wait_for_each_other(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """While somebody holds the job that waits, its set is left for the next look."""
    (claimed,) = running(database, link)
    job_id = wait_for(database, ids_of([claimed]))
    complete(link, [claimed.lease])
    with engine.connect() as connection:
        cancel(connection, job_id, by="me", reason="x")
        assert due(link) == []
        assert database.rows("SELECT outcome FROM {s}.joins") == [(None,)]
        connection.rollback()
    assert due(link) == [job_id]


def test_it_runs_like_any_other_job_then(database: Database, link: Link) -> None:
    """Claimed and completed, with its place in the tree of the job that it follows from."""
    (claimed,) = running(database, link)
    then = Note(key="then")
    job_id = wait_for(database, ids_of([claimed]), then, parent_id=claimed.lease.job_id)
    (node,) = [node for node in job_tree(link, job_id) if node.id == job_id]
    assert (node.waits_until, node.waits_for, node.waited_until) == ("succeeded", 1, None)
    complete(link, [claimed.lease])
    JoinWatch().close(link)
    release_all(link)
    (again,) = take(link, [job_id])
    assert complete(link, [again.lease]) == {job_id}
    (node,) = [node for node in job_tree(link, job_id) if node.id == job_id]
    assert node.waited_until is not None


def test_async_callers_wait_too(database: Database, link: Link) -> None:
    """Through asyncpg, with the same answers and errors."""
    (claimed,) = running(database, link)

    async def submit_it() -> UUID:
        engine = create_async_engine(database.driver_url("asyncpg"), poolclass=sa.NullPool)
        at = database_time(link)
        async with AsyncSession(engine) as session, session.begin():
            with pytest.raises(JobNotFound):
                await fan_in_async(session, [uuid4()], THEN)
            return (await fan_in_async(session, ids_of([claimed]), THEN, run_at=at)).id

    job_id = asyncio.run(submit_it())
    complete(link, [claimed.lease])
    assert due(link) == [job_id]
    with pytest.raises(TypeError, match="fan_in_async takes"):
        asyncio.run(fan_in_async(database.engine(), [], THEN))  # type: ignore[arg-type]
