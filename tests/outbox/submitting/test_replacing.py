"""Other arguments, or another time, for a job that waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import LogicalKeyConflict, bound_queue, enqueue, enqueue_many, fan_in, pause, resume
from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE, PauseKeeper
from outbox.leases.ending import complete, hand_back
from outbox.sealing.envelope import Identity
from outbox.sealing.vault import open_payload
from outbox_schemas import JobRef, JobState
from support.database import Database
from support.edits import Edit, SealedEdit, stored, write
from support.jobs import Note, look, release_all, submit, take
from support.sealing import ring, using

pytestmark = pytest.mark.usefixtures("sound")

START = datetime.now(UTC).replace(microsecond=0)


def at(hours: float) -> datetime:
    """Return an instant so many hours from when the tests began."""
    return START + timedelta(hours=hours)


def times(database: Database, job: JobRef) -> tuple[Any, Any, Any]:
    """Return when a job runs, when its hint is due, and its place in line."""
    query = "SELECT j.run_at, o.due_at, o.order_key FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id"
    found: tuple[Any, Any, Any] = database.rows(query + " WHERE j.id = %s", job.id)[0]
    return found


def test_a_waiting_job_gets_the_newer_arguments(database: Database, link: Link) -> None:
    """Payload, digest, version and subject are the newer ones; identity and options are the first submission's."""
    (first,) = write(database, Edit(key="k", body=1), run_at=at(2), priority=5, correlation_id="first")
    newer = type("Newer", (Edit,), {"version": 2, "__module__": __name__})(key="k", body=2, about="new")
    (again,) = write(database, newer, replace="earliest", run_at=at(3), priority=-5, correlation_id="second")
    assert again == JobRef(first.id, created=False, state=JobState.READY, replaced=True)
    view = look(database, first.id)
    assert (view.version, view.subject, view.priority, view.correlation_id) == (2, "new", 5, "first")
    assert stored(database, first.id) == 2
    assert times(database, first) == (at(2), at(2), at(2) - timedelta(minutes=5))
    assert database.value("SELECT subject FROM {s}.outbox") == "test.note:new"
    (unchanged,) = write(database, newer, replace="latest", run_at=at(1))
    assert (unchanged.created, unchanged.replaced) == (False, False)
    with pytest.raises(LogicalKeyConflict), database.engine().begin() as connection:
        enqueue(connection, Edit(key="k", body=1))
    assert database.count("audit") == 0


def test_a_key_that_is_free_makes_a_job(database: Database) -> None:
    """One, or several by a call, of which the last counts for a key."""
    assert write(database, Note(key="one"), replace="latest")[0].created
    first, other, last = write(
        database, Note(key="k", body=1), Note(key="other"), Note(key="k", body=2), replace="earliest"
    )
    assert (first.created, other.created, last.created, last.replaced) == (True, True, False, True)
    assert (first.id, stored(database, first.id)) == (last.id, 2)


def test_the_earlier_or_the_later_time_counts(database: Database) -> None:
    """With the same arguments only the time follows; past its deadline, it stays as it was."""
    (job,) = write(database, Note(key="k"), run_at=at(5), deadline=at(9), priority=1)
    for word, asked, expected, changed in [
        ("earliest", at(6), at(5), False),
        ("latest", at(6), at(6), True),
        ("latest", at(5), at(6), False),
        ("latest", at(9), at(6), False),
        ("latest", at(8), at(8), True),
        ("earliest", at(3), at(3), True),
    ]:
        (again,) = write(database, Note(key="k"), replace=word, run_at=asked)
        assert (again.replaced, again.created) == (changed, False)
        assert times(database, job) == (expected, expected, expected - timedelta(minutes=1))
    assert write(database, Note(key="k", body=2), replace="latest", run_at=at(9))[0].replaced
    assert times(database, job)[0] == at(3)
    (now,) = write(database, Note(key="k", body=2), replace="earliest")
    assert now.replaced
    assert times(database, job)[0] <= datetime.now(UTC) + timedelta(minutes=1)


def test_a_hint_that_is_out_is_taken_back(database: Database, link: Link) -> None:
    """Its claim comes to nothing; the job is owed anew, and then runs with the newer arguments."""
    (job,) = write(database, Note(key="k", body=1))
    release_all(link)
    assert write(database, Note(key="k", body=2), replace="earliest")[0].replaced
    assert take(link, [job.id]) == []
    assert [hint.job_id for hint in release_all(link)] == [job.id]
    (claimed,) = take(link, [job.id])
    assert '"body": 2' in claimed.payload_text
    assert complete(link, [claimed.lease]) == {job.id}


def test_what_has_begun_or_ended_keeps_its_arguments(database: Database, link: Link) -> None:
    """Running, handed back, ended: the same arguments find the job, others are refused, and the remedy is named."""
    (job,) = write(database, Note(key="k", body=1))
    for move in ("run", "back", "end"):
        if move != "back":
            release_all(link)
            (claimed,) = take(link, [job.id])
        if move == "back":
            hand_back(link, [claimed.lease])
        if move == "end":
            complete(link, [claimed.lease])
        (same,) = write(database, Note(key="k", body=1), replace="latest")
        assert (same.id, same.created, same.replaced) == (job.id, False, False)
        with database.engine().connect() as connection:
            with pytest.raises(LogicalKeyConflict, match=r"has begun, or which has ended.* with supersedes") as refused:
                enqueue(connection, Note(key="k", body=2), replace="latest")
            assert refused.value.begun
            assert enqueue(connection, Note(key=f"other {move}"), run_at=at(1)).created
            connection.commit()
    assert stored(database, job.id) == 1
    assert look(database, job.id).state is JobState.SUCCEEDED


def test_a_refused_batch_replaces_nothing(database: Database, link: Link) -> None:
    """One that has begun keeps all others as they were."""
    jobs = write(database, Note(key="a", body=1), Note(key="b", body=1))
    release_all(link)
    take(link, [jobs[1].id])
    with database.engine().connect() as connection:
        with pytest.raises(LogicalKeyConflict):
            enqueue_many(connection, [Note(key=key, body=2) for key in "abc"], replace="latest")
        connection.commit()
    assert [stored(database, job.id) for job in jobs] == [1, 1]
    assert database.count("jobs") == 2


def test_what_is_rolled_back_has_replaced_nothing(database: Database, link: Link) -> None:
    """The hint that was out is good as before."""
    (job,) = write(database, Note(key="k", body=1))
    release_all(link)
    with database.engine().connect() as connection:
        assert enqueue(connection, Note(key="k", body=2), replace="latest", run_at=at(5)).replaced
        connection.rollback()
    assert stored(database, job.id) == 1
    assert len(take(link, [job.id])) == 1


def test_arguments_that_a_rival_has_just_replaced_are_compared_anew(database: Database) -> None:
    """What were the same arguments are others by then: those of the call that comes last stay."""
    (job,) = write(database, Note(key="k", body=1), run_at=at(1))
    engine, rivals = database.engine(), iter([2])

    @sa.event.listens_for(engine, "before_cursor_execute")
    def come_between(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "replaced AS" in statement:
            for body in rivals:
                assert write(database, Note(key="k", body=body), replace="latest")[0].replaced

    with engine.begin() as connection:
        last = enqueue(connection, Note(key="k", body=1), replace="latest", run_at=at(2))
    assert last.replaced
    assert (stored(database, job.id), times(database, job)[0]) == (1, at(2))


def test_what_is_set_aside_stays_aside(database: Database, link: Link) -> None:
    """A paused tenant's job gets the newer arguments and time, and its place in line when the pause is over."""
    (job,) = write(database, Note(key="k", body=1), tenant="t")
    keeper = PauseKeeper()
    with database.engine().begin() as connection:
        pause(connection, "tenant", "t", by="me", reason="test")
    keeper.keep(link, turn_s=30)
    assert times(database, job)[1:] == (ASIDE, ASIDE)
    assert write(database, Note(key="k", body=2), tenant="t", replace="latest", run_at=at(1))[0].replaced
    assert times(database, job) == (at(1), ASIDE, ASIDE)
    with database.engine().begin() as connection:
        resume(connection, "tenant", "t", by="me", reason="test")
    keeper.keep(link, turn_s=30)
    assert times(database, job) == (at(1), at(1), at(1))


def test_a_job_that_waits_for_others_waits_on(database: Database) -> None:
    """It gets the newer arguments; its time is that of its set."""
    member = submit(database)[0]
    with database.engine().begin() as connection:
        then = fan_in(connection, [member], Note(key="then", body=1))
        assert enqueue(connection, Note(key="then", body=2), replace="earliest").replaced
    assert look(database, then.id).run_at is None
    assert stored(database, then.id) == 2


def test_a_full_queue_takes_what_replaces(database: Database) -> None:
    """Nothing is added by it, so it is neither refused nor put off; a new key is."""
    (job,) = write(database, Note(key="k", body=1), run_at=at(1))
    for policy in ("refuse", "defer"):
        with database.engine().begin() as connection:
            bound_queue(connection, "notes", max_backlog=1, policy=policy, by="me", reason="test")
        database.rows(
            "INSERT INTO {s}.queue_figures (queue, backlog, capped, scheduled, running, counted_at) "
            "VALUES ('notes', 5, false, 0, 0, {s}.clock()) ON CONFLICT DO NOTHING"
        )
        assert write(database, Note(key="k", body=policy), replace="latest")[0].replaced
        assert stored(database, job.id) == policy
        assert times(database, job)[0] == at(1)


def test_a_sealed_payload_is_sealed_for_the_job_that_gets_it(database: Database, link: Link) -> None:
    """It opens as that job's, and a worker that has its key may claim it."""
    keys = ring("now")
    with using(keys):
        (job,) = write(database, SealedEdit(key="k", body="one"))
        database.rows("UPDATE {s}.outbox SET needs_key = 'lost'")
        assert write(database, SealedEdit(key="k", body="the second"), replace="latest", run_at=at(-1))[0].replaced
        assert not write(database, SealedEdit(key="k", body="the second"), replace="earliest", run_at=at(9))[0].replaced
        with pytest.raises(LogicalKeyConflict):
            write(database, SealedEdit(key="k", body="one"))
    text = database.value("SELECT payload::text FROM {s}.jobs")
    assert "the second" not in text
    assert '"body":"the second"' in open_payload(keys, Identity(job.id, "default", "test.note", 1), text)[1]
    release_all(link)
    assert len(take(link, [job.id])) == 1
