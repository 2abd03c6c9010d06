"""What time alone brings about: lost leases and passed deadlines."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from outbox import cancel
from outbox.database.link import Link
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import complete, complete_within, hand_back, retry
from outbox.leases.leasing import heartbeat
from outbox_schemas import JobState, Outcome, Phase
from support.database import Database
from support.jobs import ABILITIES, BROKEN, Note, history, look, release_all, running, submit, take

pytestmark = pytest.mark.usefixtures("sound")


def test_an_expired_lease_is_taken_back(database: Database, link: Link) -> None:
    """The job is owed at once, its attempt is charged, and the next claim has the next number."""
    database.clock.stop()
    (mine,) = running(database, link)
    assert recover_leases(link) == []
    database.clock.advance(59)
    assert recover_leases(link) == []
    database.clock.advance(2)
    (lost,) = recover_leases(link)
    assert (lost.job_id, lost.state, lost.attempt) == (mine.lease.job_id, JobState.READY, 1)
    view = look(database, mine.lease.job_id)
    assert view.owed is not None
    assert (view.owed.phase, view.owed.last_error) == (Phase.OWED, "lease expired")
    assert view.last_error is not None
    assert (view.last_error.error_class, view.last_error.code) == ("lease_lost", "lease_expired")
    assert recover_leases(link) == []
    release_all(link)
    (again,) = take(link, [mine.lease.job_id])
    assert (again.attempt, again.charged) == (2, 2)
    assert again.lease.token != mine.lease.token


def test_a_job_that_kills_its_workers_ends_at_its_maximum(database: Database, link: Link) -> None:
    """Attempts are charged at the claim, so crashes count, and the last one fails the job."""
    (mine,) = running(database, link)
    job_id = mine.lease.job_id
    for number in (1, 2):
        database.clock.advance(61)
        assert [(item.state, item.attempt) for item in recover_leases(link)] == [(JobState.READY, number)]
        release_all(link)
        take(link, [job_id])
    database.clock.advance(61)
    assert [(item.state, item.attempt) for item in recover_leases(link)] == [(JobState.FAILED, 3)]
    view = look(database, job_id)
    assert (view.state, view.owed) == (JobState.FAILED, None)
    assert view.last_error is not None
    assert view.last_error.code == "lease_expired"
    assert history(database, job_id) == [(1, "lease_lost"), (2, "lease_lost"), (3, "lease_lost")]


def test_handed_back_attempts_do_not_count_towards_the_maximum(database: Database, link: Link) -> None:
    """Deploys that hand work back never use up a job's tries."""
    (mine,) = running(database, link)
    for _ in range(5):
        hand_back(link, [mine.lease])
        release_all(link)
        (mine,) = take(link, [mine.lease.job_id])
    for state in (JobState.READY, JobState.READY, JobState.FAILED):
        database.clock.advance(61)
        assert [item.state for item in recover_leases(link)] == [state]
        release_all(link)
        take(link, [mine.lease.job_id])
    view = look(database, mine.lease.job_id)
    assert (view.attempt_count, view.uncharged_attempts) == (8, 5)


def test_the_first_error_outlives_a_lost_lease(database: Database, link: Link) -> None:
    """The lost lease is the last error, not the first."""
    (mine,) = running(database, link)
    retry(link, [(mine.lease, BROKEN, 0)])
    release_all(link)
    take(link, [mine.lease.job_id])
    database.clock.advance(61)
    recover_leases(link)
    view = look(database, mine.lease.job_id)
    assert view.first_error is not None
    assert view.last_error is not None
    assert (view.first_error.code, view.last_error.code) == ("ValueError", "lease_expired")


def test_recovery_works_in_batches(database: Database, link: Link) -> None:
    """A full batch says that there may be more, and living leases are never touched."""
    jobs = running(database, link, 5)
    database.clock.advance(30)
    heartbeat(link, [jobs[4].lease])
    database.clock.advance(31)
    assert [len(recover_leases(link, batch=3)) for _ in range(3)] == [3, 1, 0]
    assert look(database, jobs[4].lease.job_id).state is JobState.RUNNING


def test_recovery_leaves_a_completing_job_alone(database: Database, link: Link, engine: sa.Engine) -> None:
    """An expired lease whose completion is under way is skipped, and its neighbours are recovered."""
    mine, other = running(database, link, 2)
    database.clock.advance(61)
    with engine.begin() as connection:
        assert complete_within(connection, database.statements, mine.lease)
        assert [item.job_id for item in recover_leases(link)] == [other.lease.job_id]
    assert look(database, mine.lease.job_id).state is JobState.SUCCEEDED


def test_a_waiting_job_past_its_deadline_fails(database: Database, link: Link) -> None:
    """Owed and released jobs fail at their deadline, with the reason, and are never claimed."""
    database.clock.stop()
    deadline = database.clock.now() + timedelta(seconds=100)
    (released,) = submit(database, deadline=deadline)
    release_all(link)
    owed, other = submit(database, payloads=[Note(key="a")], deadline=deadline)[0], submit(database)[0]
    database.clock.advance(99)
    assert expire_deadlines(link) == []
    database.clock.advance(2)
    assert take(link, [released]) == []
    assert set(expire_deadlines(link)) == {released, owed}
    assert expire_deadlines(link) == []
    for job_id in (released, owed):
        view = look(database, job_id)
        assert (view.state, view.attempt_count) == (JobState.FAILED, 0)
        assert view.last_error is not None
        assert (view.last_error.error_class, view.last_error.code) == ("deadline", "deadline_exceeded")
    assert look(database, other).state is JobState.READY


def test_a_deadline_that_has_passed_is_taken_and_fails_the_job(database: Database, link: Link) -> None:
    """The database's clock decides it, once the job is written: a late repeat of a submission still finds its job."""
    passed = database.clock.now() - timedelta(days=1)
    (job_id,) = submit(database, payloads=[Note(key="a")], deadline=passed)
    assert submit(database, payloads=[Note(key="a")], deadline=passed) == [job_id]
    assert expire_deadlines(link) == [job_id]
    error = look(database, job_id).last_error
    assert error is not None
    assert error.code == "deadline_exceeded"


def test_a_running_job_outlives_its_deadline_but_is_not_tried_again(database: Database, link: Link) -> None:
    """A lease that runs over the deadline may still succeed; a retry past it fails."""
    database.clock.stop()
    deadline = database.clock.now() + timedelta(seconds=10)
    mine, other = running(database, link, 2, deadline=deadline)
    database.clock.advance(11)
    assert expire_deadlines(link) == []
    assert complete(link, [mine.lease])
    assert retry(link, [(other.lease, BROKEN, 0)]) == {other.lease.job_id: Outcome.FAILED}
    assert expire_deadlines(link) == []
    view = look(database, other.lease.job_id)
    assert view.first_error is not None
    assert view.last_error is not None
    assert (view.first_error.code, view.last_error.code) == ("ValueError", "deadline_exceeded")


def test_the_first_error_stays(database: Database, link: Link) -> None:
    """Whatever time brings about later, a lost lease or a passed deadline, is the last one: all of it, and no more."""
    database.clock.stop()
    (mine,) = running(database, link, deadline=database.clock.now() + timedelta(seconds=1000))
    retry(link, [(mine.lease, BROKEN, 0)])
    assert take(link, [hint.job_id for hint in release_all(link)])
    database.clock.advance(61)
    assert len(recover_leases(link)) == 1
    lost = look(database, mine.lease.job_id)
    database.clock.advance(1000)
    assert expire_deadlines(link) == [mine.lease.job_id]
    late = look(database, mine.lease.job_id)
    for view, code in ((lost, "lease_expired"), (late, "deadline_exceeded")):
        assert view.first_error is not None
        assert view.last_error is not None
        first = view.first_error
        assert (first.error_class, first.code, first.message) == ("unknown", "ValueError", "it broke")
        assert view.last_error.code == code


def test_running_jobs_take_no_place_in_a_batch(database: Database, link: Link) -> None:
    """A late job that still runs does not keep a waiting one, newer than it, from being failed."""
    database.clock.stop()
    deadline = database.clock.now() + timedelta(seconds=10)
    running(database, link, 2, deadline=deadline)
    (waiting,) = submit(database, deadline=deadline)
    database.clock.advance(11)
    assert expire_deadlines(link, batch=1) == [waiting]


def test_expiry_works_in_batches(database: Database, link: Link) -> None:
    """No more than the batch ends at once."""
    database.clock.stop()
    submit(database, 5, deadline=database.clock.now() + timedelta(seconds=1))
    database.clock.advance(2)
    assert [len(expire_deadlines(link, batch=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_claim_with_no_maximum_left_still_ends(database: Database, link: Link) -> None:
    """A maximum of one means one lease."""
    (mine,) = running(database, link, max_attempts=1)
    database.clock.advance(61)
    assert [item.state for item in recover_leases(link)] == [JobState.FAILED]
    assert take(link, [mine.lease.job_id], ABILITIES) == []


def test_recovery_and_cancel_do_not_wait_for_each_other_long(database: Database, link: Link, engine: sa.Engine) -> None:
    """A lease whose job is being cancelled is skipped by recovery, which goes on with the next."""
    mine, other = running(database, link, 2)
    database.clock.advance(61)
    with engine.begin() as connection:
        assert cancel(connection, mine.lease.job_id, by="me", reason="enough").state is JobState.CANCELLED
        assert [item.job_id for item in recover_leases(link)] == [other.lease.job_id]
    assert history(database, mine.lease.job_id) == [(1, "cancelled")]
