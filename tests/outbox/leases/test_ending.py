"""The ends of an attempt: complete, retry, hand back, fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import cancel
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import (
    Course,
    Failure,
    Unstarted,
    complete,
    complete_within,
    fail,
    hand_back,
    outcomes,
    retry,
    unsettled,
    unsettled_within,
)
from outbox.leases.leasing import Lease
from outbox.reading.jobs import list_attempts
from outbox_schemas import FailedBecause, JobState, Outcome
from support.database import Database
from support.jobs import BROKEN, RIVAL, WORKER, history, look, release_all, running, submit, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

End = Callable[[Link, Sequence[Lease]], set[UUID]]

ENDS: dict[str, tuple[End, JobState, Outcome]] = {
    "complete": (complete, JobState.SUCCEEDED, Outcome.SUCCEEDED),
    "retry": (
        lambda link, leases: set(retry(link, [(lease, BROKEN, 5.0) for lease in leases])),
        JobState.READY,
        Outcome.RETRIED,
    ),
    "hand_back": (hand_back, JobState.READY, Outcome.HANDED_BACK),
    "fail": (lambda link, leases: fail(link, [(lease, BROKEN) for lease in leases]), JobState.FAILED, Outcome.FAILED),
}
every_end = pytest.mark.parametrize("name", ENDS)


@every_end
def test_the_owner_ends_its_attempt(database: Database, link: Link, name: str) -> None:
    """The right token moves the job, ends the attempt once, and keeps who did it."""
    end, state, outcome = ENDS[name]
    (mine,) = running(database, link)
    assert end(link, [mine.lease]) == {mine.lease.job_id}
    view = look(database, mine.lease.job_id)
    assert (view.state, view.attempt_count, view.lease_owner) == (state, 1, WORKER.name)
    assert (view.owed is None) is (state is not JobState.READY)
    assert (view.finished_at is None) is (state is JobState.READY)
    row = "SELECT number, lease_token, worker, host, worker_version, handler_version, outcome FROM {s}.attempts"
    assert database.rows(row) == [
        (1, mine.lease.token, WORKER.name, WORKER.host, WORKER.version, "handler-1", outcome.value)
    ]
    hinted, claimed, ended = database.rows("SELECT hinted_at, claimed_at, ended_at FROM {s}.attempts")[0]
    assert hinted <= claimed <= ended


@every_end
def test_a_stale_token_changes_nothing(database: Database, link: Link, name: str) -> None:
    """A token that never owned the job, or once did, moves neither row and leaves no trace."""
    end = ENDS[name][0]
    (lost,) = running(database, link)
    database.clock.advance(61)
    recover_leases(link)
    before = everything(database)
    assert end(link, [lost.lease]) == set()
    assert everything(database) == before
    release_all(link)
    take(link, [lost.lease.job_id], worker=RIVAL)
    before = everything(database)
    assert end(link, [lost.lease]) == set()
    assert end(link, [Lease(lost.lease.job_id, uuid4(), 1), Lease(uuid4(), lost.lease.token, 1)]) == set()
    assert everything(database) == before


@every_end
@pytest.mark.parametrize("phase", ["owed", "released", "gone"])
def test_a_job_in_another_phase_is_not_ended(database: Database, link: Link, name: str, phase: str) -> None:
    """A job that waits or is over can't be ended, whatever token is shown."""
    (job_id,) = submit(database)
    if phase != "owed":
        release_all(link)
    if phase == "gone":
        complete(link, [take(link, [job_id])[0].lease])
    before = everything(database)
    assert ENDS[name][0](link, [Lease(job_id, uuid4(), 60)]) == set()
    assert everything(database) == before


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
def test_an_attempt_ends_once(database: Database, link: Link, first: str, second: str) -> None:
    """After any end, any other end of the same attempt changes nothing."""
    (mine,) = running(database, link)
    ENDS[first][0](link, [mine.lease])
    before = everything(database)
    assert ENDS[second][0](link, [mine.lease]) == set()
    assert everything(database) == before


@every_end
def test_a_batch_moves_exactly_its_owned_jobs(database: Database, link: Link, name: str) -> None:
    """Stale, unknown and repeated members of a batch do not hurt the others."""
    end, state, _ = ENDS[name]
    good_1, stale, good_2, other = (item.lease for item in running(database, link, 4))
    batch = [good_1, Lease(stale.job_id, uuid4(), 1), Lease(uuid4(), uuid4(), 1), good_2]
    assert end(link, batch) == {good_1.job_id, good_2.job_id}
    states = {
        job_id: look(database, job_id).state for job_id in (good_1.job_id, good_2.job_id, stale.job_id, other.job_id)
    }
    assert states == {
        good_1.job_id: state, good_2.job_id: state, stale.job_id: JobState.RUNNING, other.job_id: JobState.RUNNING,
    }  # fmt: skip
    assert end(link, []) == set()


@every_end
def test_a_batch_locks_its_rows_in_id_order(database: Database, link: Link, name: str) -> None:
    """While the lowest id of a batch is held elsewhere, the batch holds none of the others, so no circle can form."""
    leases = sorted((item.lease for item in running(database, link, 8)), key=lambda lease: lease.job_id)
    free = database.sql("SELECT job_id FROM {s}.outbox ORDER BY job_id FOR UPDATE SKIP LOCKED")
    pid = link.connection().info.backend_pid
    waits = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    with database.connect(autocommit=False) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(database.sql("SELECT 1 FROM {s}.outbox WHERE job_id = %s FOR UPDATE"), [leases[0].job_id])
        waiting = pool.submit(ENDS[name][0], link, leases[::-1])
        until(lambda: database.count(waits, pid))
        assert [row[0] for row in database.raw.execute(free).fetchall()] == [lease.job_id for lease in leases[1:]]
        holder.rollback()
        assert len(waiting.result(30)) == 8


@every_end
def test_swapped_tokens_do_nothing(database: Database, link: Link, name: str) -> None:
    """Each token counts for its own job only, even inside one batch."""
    one, two = (item.lease for item in running(database, link, 2))
    assert ENDS[name][0](link, [Lease(one.job_id, two.token, 1), Lease(two.job_id, one.token, 1)]) == set()


def test_a_retry_waits_its_delay(database: Database, link: Link) -> None:
    """The job is ready with a later `run_at`, keeps its first error, shows its last, and is charged."""
    (mine,) = running(database, link)
    retry(link, [(mine.lease, BROKEN, 30.0)])
    view = look(database, mine.lease.job_id)
    assert view.owed is not None
    assert view.owed.due_at == view.run_at
    assert release_all(link) == []
    database.clock.advance(31)
    release_all(link)
    (again,) = take(link, [mine.lease.job_id])
    assert (again.attempt, again.charged) == (2, 2)
    retry(link, [(again.lease, Failure("other", "KeyError", "worse"), 0)])
    view = look(database, mine.lease.job_id)
    assert view.first_error is not None
    assert view.last_error is not None
    assert (view.first_error.code, view.last_error.code) == ("ValueError", "KeyError")
    assert history(database, mine.lease.job_id) == [(1, "retried"), (2, "retried")]


def test_each_attempt_of_a_batch_has_its_own_delay(database: Database, link: Link) -> None:
    """Delays and errors stay with their jobs."""
    jobs = running(database, link, 3)
    retry(link, [(item.lease, Failure("c", f"code {n}", "m"), 10.0 * n) for n, item in enumerate(jobs)])
    database.clock.advance(11)
    assert {hint.job_id for hint in release_all(link)} == {item.lease.job_id for item in jobs[:2]}
    for number, item in enumerate(jobs):
        error = look(database, item.lease.job_id).last_error
        assert error is not None
        assert error.code == f"code {number}"


def test_handing_back_charges_nothing_and_is_due_at_once(database: Database, link: Link) -> None:
    """Unstarted work keeps its `run_at` and its tries; only the attempt's number grows."""
    (mine,) = running(database, link)
    run_at = look(database, mine.lease.job_id).run_at
    for number in range(1, 6):
        (job_id,) = hand_back(link, [mine.lease], [Unstarted.STOPPING])
        view = look(database, job_id)
        assert (view.run_at, view.attempt_count, view.uncharged_attempts) == (run_at, number, number)
        assert (view.first_error, view.last_error) == (None, None)
        release_all(link)
        (mine,) = take(link, [job_id])
        assert (mine.attempt, mine.charged) == (number + 1, 1)
    assert [outcome for _, outcome in history(database, mine.lease.job_id)] == ["handed_back"] * 5
    assert database.rows("SELECT DISTINCT error_class, error_code FROM {s}.attempts") == [
        ("unstarted", "worker_stopping")
    ]


def test_hand_back_after_an_error_keeps_the_error(database: Database, link: Link) -> None:
    """A hand-back is no error and hides none."""
    (mine,) = running(database, link)
    retry(link, [(mine.lease, BROKEN, 0)])
    release_all(link)
    hand_back(link, [take(link, [mine.lease.job_id])[0].lease], [Unstarted.BUSY])
    view = look(database, mine.lease.job_id)
    assert view.first_error == view.last_error
    assert view.last_error is not None
    assert view.last_error.code == "ValueError"


def test_what_is_handed_back_past_its_deadline_is_no_failed_try(database: Database, link: Link) -> None:
    """Nothing of it ran: its attempt is handed back, and the deadline is the keeping of time's to see to."""
    (mine,) = running(database, link, deadline=database.clock.now() + timedelta(hours=1))
    database.clock.advance(7200)
    assert hand_back(link, [mine.lease]) == {mine.lease.job_id}
    assert look(database, mine.lease.job_id).state == JobState.READY
    assert history(database, mine.lease.job_id) == [(1, Outcome.HANDED_BACK)]


def test_failing_keeps_the_error_and_its_traceback(database: Database, link: Link) -> None:
    """A failed job waits for a person with all that is known about why."""
    (mine,) = running(database, link)
    fail(link, [(mine.lease, BROKEN)])
    view = look(database, mine.lease.job_id)
    assert view.first_error == view.last_error
    assert view.last_error is not None
    assert (view.last_error.error_class, view.last_error.message) == ("unknown", "it broke")
    assert database.value("SELECT traceback FROM {s}.attempts") == BROKEN.traceback


def test_outcomes_answer_a_commit_whose_answer_was_lost(database: Database, link: Link) -> None:
    """By token one learns how an attempt ended, or that it has not; a later attempt's end is not mistaken for it."""
    done, back, still, lost = running(database, link, 4)
    complete(link, [done.lease])
    hand_back(link, [back.lease])
    database.clock.advance(1)
    leases = [done.lease, back.lease, still.lease, Lease(done.lease.job_id, uuid4(), 1)]
    assert outcomes(link, leases) == {done.lease.token: Outcome.SUCCEEDED, back.lease.token: Outcome.HANDED_BACK}
    release_all(link)
    (again,) = take(link, [back.lease.job_id])
    complete(link, [again.lease])
    assert outcomes(link, [back.lease]) == {back.lease.token: Outcome.HANDED_BACK}
    assert outcomes(link, [lost.lease]) == {}
    assert outcomes(link, []) == {}


def test_completion_and_effects_commit_together(database: Database, link: Link, engine: sa.Engine) -> None:
    """What follows the fence in the same transaction is there exactly if the completion is."""
    (mine,) = running(database, link)
    database.rows("CREATE TABLE public.effect (id text PRIMARY KEY)")
    insert = sa.text("INSERT INTO public.effect VALUES ('e')")
    with engine.connect() as connection:
        assert complete_within(connection, database.statements, mine.lease)
        connection.execute(insert)
        connection.rollback()
    assert look(database, mine.lease.job_id).state is JobState.RUNNING
    with engine.begin() as connection:
        assert complete_within(connection, database.statements, mine.lease)
        connection.execute(insert)
    assert look(database, mine.lease.job_id).state is JobState.SUCCEEDED
    with engine.begin() as connection:
        assert not complete_within(connection, database.statements, mine.lease)
    assert database.count("SELECT 1 FROM public.effect") == 1


@pytest.mark.parametrize("state", ["pending", "uncertain"])
def test_no_job_succeeds_with_an_open_effect(database: Database, link: Link, engine: sa.Engine, state: str) -> None:
    """Neither statement lets it; its neighbours are none the worse, and what keeps it is told to its owner alone."""
    jobs = running(database, link, 3)
    leases = [item.lease for item in jobs]
    for lease, names in zip(leases, ("abcd", "e", ""), strict=True):
        for name in names:
            database.rows(
                "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
                "VALUES (%s, %s, %s, '', 1, now(), CASE WHEN %s = 'confirmed' THEN now() END)",
                *(lease.job_id, name, *[state if name < "d" else "confirmed"] * 2),
            )
    stale = leases[0]._replace(token=uuid4())
    told = ", ".join(f"{name} ({state})" for name in "abc")
    assert unsettled(link, leases) == {leases[0].job_id: told}
    assert unsettled(link, [stale]) == {}
    with engine.begin() as connection:
        assert complete_within(connection, database.statements, leases[0]) is None
        assert unsettled_within(connection, database.statements, leases[0]) == told
        assert unsettled_within(connection, database.statements, leases[1]) is None
    with engine.connect() as connection:
        assert complete_within(connection, database.statements, leases[1]), "what is confirmed keeps nobody"
        connection.rollback()
    assert complete(link, leases) == {leases[1].job_id, leases[2].job_id}
    assert look(database, leases[0].job_id).state is JobState.RUNNING
    database.rows("UPDATE {s}.effects SET state = 'not_done' WHERE state <> 'confirmed'")
    assert complete(link, leases) == {leases[0].job_id}


def test_an_expired_lease_that_nobody_took_may_still_complete(database: Database, link: Link) -> None:
    """The token decides, not the clock: until the lease is recovered its owner's end stands."""
    (mine,) = running(database, link)
    database.clock.advance(10_000)
    assert complete(link, [mine.lease])
    assert recover_leases(link) == []


def test_a_cancelled_job_refuses_its_workers_end(database: Database, link: Link, engine: sa.Engine) -> None:
    """Every end that comes after a cancel changes nothing."""
    jobs = running(database, link, len(ENDS))
    with engine.begin() as connection:
        for item in jobs:
            cancel(connection, item.lease.job_id, by="me", reason="enough")
    for item, (end, _, _) in zip(jobs, ENDS.values(), strict=True):
        assert end(link, [item.lease]) == set()
        assert history(database, item.lease.job_id) == [(1, "cancelled")]


def test_long_delays_do_not_overflow(database: Database, link: Link) -> None:
    """A delay of a century is held as asked."""
    (mine,) = running(database, link)
    database.clock.stop()
    retry(link, [(mine.lease, BROKEN, 3e9)])
    assert look(database, mine.lease.job_id).run_at - database.clock.now() == timedelta(seconds=3e9)


def everything(database: Database) -> list[object]:
    """Return all that a transition may touch, row versions included."""
    return [
        database.rows(f"SELECT x.xmin::text, x.* FROM {{s}}.{table} AS x ORDER BY 2, 3")
        for table in ("jobs", "outbox", "attempts", "audit", "checkpoints")
    ]


def test_the_course_of_an_attempt_is_kept(database: Database, link: Link) -> None:
    """When it started, how far it came and what effects it touched, by every statement that ends one."""
    database.clock.stop()
    jobs = running(database, link, 5)
    database.clock.advance(10)
    leases = [item.lease for item in jobs]
    course = Course(4.0, "started", ["mail", "charge"])
    retry(link, [(leases[0], BROKEN, 0)], [course])
    fail(link, [(leases[1], BROKEN)], [course], because=[FailedBecause.UNKNOWN_EXHAUSTED])
    complete(link, [leases[2]], started_s=[4.0], effects=[course.effects_text])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        assert complete_within(connection, database.statements, leases[3], course)
    hand_back(link, [leases[4]])
    found = [list_attempts(link, lease.job_id)[0] for lease in leases]
    started = [one.started_at and (one.started_at - one.claimed_at).total_seconds() for one in found]
    assert started == [4.0, 4.0, 4.0, 4.0, None]
    assert [one.reached for one in found] == ["started", "started", "done", "done", "claimed"]
    assert [one.effects_touched for one in found] == [("mail", "charge")] * 4 + [None]
    assert [one.failed_because for one in found] == [None, "unknown_exhausted", None, None, None]


def test_of_very_many_effects_an_attempt_names_a_hundred(database: Database, link: Link, engine: sa.Engine) -> None:
    """An attempt that a cancel or a lost lease ends says of the rest how many there are."""
    lost, cancelled, few = running(database, link, 3)
    for item, count in ((lost, 103), (cancelled, 103), (few, 100)):
        database.rows(
            "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
            "SELECT %s, to_char(n, 'FM000'), 'confirmed', '', 1, now(), now() FROM generate_series(1, %s) AS n",
            *(item.lease.job_id, count),
        )
    with engine.begin() as connection:
        cancel(connection, cancelled.lease.job_id, by="me", reason="enough")
    database.clock.advance(10_000)
    recover_leases(link)
    found = {item: list_attempts(link, item.lease.job_id)[0].effects_touched for item in (lost, cancelled, few)}
    names = tuple(f"{number:03}" for number in range(1, 101))
    assert found == {lost: (*names, "and 3 more"), cancelled: (*names, "and 3 more"), few: names}


def test_no_attempt_starts_after_its_end(database: Database, link: Link) -> None:
    """A worker's stopwatch may run faster than the database's clock."""
    database.clock.stop()
    (mine,) = running(database, link)
    retry(link, [(mine.lease, BROKEN, 0)], [Course(3600.0, "started")])
    (only,) = list_attempts(link, mine.lease.job_id)
    assert only.started_at == only.ended_at == only.claimed_at


def test_a_batch_may_name_two_leases_of_one_job(database: Database, link: Link) -> None:
    """What belongs to the lost one does not reach the history of the current one."""
    database.clock.stop()
    (old,) = running(database, link)
    database.clock.advance(3600)
    recover_leases(link)
    release_all(link)
    (new,) = take(link, [old.lease.job_id])
    database.clock.advance(10)
    assert complete(link, [old.lease, new.lease], started_s=[9.0, 2.0]) == {new.lease.job_id}
    last = list_attempts(link, new.lease.job_id)[-1]
    assert last.started_at is not None
    assert (last.number, (last.started_at - last.claimed_at).total_seconds()) == (2, 2.0)
