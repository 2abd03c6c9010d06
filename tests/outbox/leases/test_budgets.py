"""What history says of a job's budgets, and what is kept of refused writes."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from outbox import redrive
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.budgets import NOTHING_SPENT, Spent, spent, spent_within
from outbox.leases.ending import Failure, fail, hand_back, park, retry
from outbox.leases.leasing import Ability, claim
from outbox.leases.refusing import REFUSALS_PER_JOB, RefusedWrite, record_refusals
from outbox.reading.jobs import list_refusals
from outbox_schemas import FailedBecause, JobState
from support.database import Database
from support.jobs import LEASE_S, WORKER, look, release_all, running, submit, take

pytestmark = pytest.mark.usefixtures("sound")

KINDS = ["unknown", "throttled", "retryable", "unknown"]


def attempts(link: Link, job_id: UUID, classes: list[str]) -> None:
    """Have a job fail in these ways, one attempt each."""
    for error_class in classes:
        release_all(link)
        (claimed,) = take(link, [job_id])
        retry(link, [(claimed.lease, Failure(error_class, error_class, "no"), 0)])


def test_spent_counts_by_class_and_age(database: Database, link: Link) -> None:
    """Unknown and throttled attempts are counted apart, and age runs from the first claim."""
    database.clock.stop()
    (job_id, other) = submit(database, 2, max_attempts=99)
    attempts(link, job_id, KINDS[:2])
    database.clock.advance(50)
    attempts(link, job_id, KINDS[2:])
    assert spent(link, [job_id, uuid4()]) == {job_id: Spent(2, 1, 50.0)}
    with database.engine().connect() as connection:
        assert spent_within(connection, database.statements, job_id) == Spent(2, 1, 50.0)
        assert spent_within(connection, database.statements, uuid4()) == NOTHING_SPENT
    attempts(link, other, [])
    view = look(database, job_id)
    assert (view.attempt_count, view.uncharged_attempts) == (4, 1)


def test_a_redrive_begins_a_new_budget_and_goes_on_numbering(database: Database, link: Link) -> None:
    """What was spent before it counts for nothing; the attempts' numbers grow on."""
    database.clock.stop()
    (job_id,) = submit(database, max_attempts=3)
    attempts(link, job_id, KINDS[:2])
    release_all(link)
    (claimed,) = take(link, [job_id])
    fail(link, [(claimed.lease, Failure("unknown", "x", "no"))], because=[FailedBecause.UNKNOWN_EXHAUSTED])
    database.clock.advance(1000)
    with database.engine().begin() as connection:
        redrive(connection, job_id, by="ada", reason="mended", schema=database.schema)
    release_all(link)
    (again,) = take(link, [job_id])
    assert (again.attempt, again.charged, again.budget_start) == (4, 1, 3)
    database.clock.advance(7)
    assert spent(link, [job_id]) == {job_id: Spent(0, 0, 7.0)}
    retry(link, [(again.lease, Failure("unknown", "x", "no"), 0)])
    assert spent(link, [job_id]) == {job_id: Spent(1, 0, 7.0)}


@pytest.mark.parametrize(
    ("max_age_s", "deadline_s", "max_attempts", "expected"),
    [
        (None, None, 9, (JobState.READY, None, "lease_expired")),
        (3600, 7200, 9, (JobState.READY, None, "lease_expired")),
        (60, None, 9, (JobState.FAILED, "age_exhausted", "lease_expired")),
        (None, 30, 9, (JobState.FAILED, "deadline_exceeded", "deadline_exceeded")),
        (60, 30, 1, (JobState.FAILED, "attempts_exhausted", "lease_expired")),
    ],
)
def test_a_lost_lease_is_judged_by_attempts_age_and_deadline(
    database: Database,
    link: Link,
    max_age_s: int | None,
    deadline_s: int | None,
    max_attempts: int,
    expected: tuple[JobState, str | None, str],
) -> None:
    """Whoever takes it back knows all of that from the job's own row and history."""
    database.clock.stop()
    deadline = None if deadline_s is None else database.clock.now() + timedelta(seconds=deadline_s)
    (job_id,) = submit(database, deadline=deadline)
    release_all(link)
    ability = Ability("test.note", 1, LEASE_S, max_attempts, "h", max_age_s)
    assert len(take(link, [job_id], [ability])) == 1
    database.clock.advance(LEASE_S + 1)
    (lost,) = recover_leases(link)
    view = look(database, job_id)
    assert view.last_error is not None
    assert (lost.state, view.failed_because, view.last_error.code) == expected
    assert view.first_error is not None
    assert view.first_error.code == "lease_expired"


def test_age_of_a_lost_lease_counts_from_the_first_claim(database: Database, link: Link) -> None:
    """Not from the claim of the attempt that was lost."""
    database.clock.stop()
    (job_id,) = submit(database)
    ability = Ability("test.note", 1, LEASE_S, 9, "h", 100)
    states = []
    for _ in range(2):
        release_all(link)
        take(link, [job_id], [ability])
        database.clock.advance(LEASE_S + 1)
        states += [lost.state for lost in recover_leases(link)]
    assert states == [JobState.READY, JobState.FAILED]


def test_age_of_a_lost_lease_begins_anew_with_a_redrive(database: Database, link: Link) -> None:
    """What a person has put back is judged by the claims since."""
    database.clock.stop()
    (job_id,) = submit(database)
    ability = Ability("test.note", 1, LEASE_S, 9, "h", 2 * int(LEASE_S))
    release_all(link)
    (claimed,) = take(link, [job_id], [ability])
    fail(link, [(claimed.lease, Failure("terminal", "x", "no"))])
    database.clock.advance(3600)
    with database.engine().begin() as connection:
        redrive(connection, job_id, by="ada", reason="mended", schema=database.schema)
    release_all(link)
    take(link, [job_id], [ability])
    database.clock.advance(LEASE_S + 1)
    assert [lost.state for lost in recover_leases(link)] == [JobState.READY]


def test_time_spent_waiting_for_a_key_is_no_age(database: Database, link: Link) -> None:
    """Whoever was claimed by workers without its key had not begun: neither a failure nor a lost lease counts it."""
    database.clock.stop()
    (job_id,) = submit(database)
    ability = Ability("test.note", 1, LEASE_S, 9, "h", 2 * int(LEASE_S))
    release_all(link)
    (parked,) = take(link, [job_id], [ability])
    park(link, [(parked.lease, "k1")])
    database.clock.advance(3600)
    release_all(link)
    assert len(claim(link, [job_id], [ability], WORKER, key_ids=["k1"])) == 1
    database.clock.advance(LEASE_S + 1)
    assert spent(link, [job_id])[job_id].age_s == LEASE_S + 1
    assert [lost.state for lost in recover_leases(link)] == [JobState.READY]
    database.clock.advance(LEASE_S)
    assert spent(link, [job_id])[job_id].age_s == 2 * LEASE_S + 1


def test_no_age_begins_with_what_was_handed_back(database: Database, link: Link) -> None:
    """What was claimed and given back unstarted has all its time before it, in every place that asks."""
    database.clock.stop()
    (job_id,) = submit(database)
    ability = Ability("test.note", 1, LEASE_S, 9, "h", 100)
    ages = []
    for wait_s in (1000, 30):
        release_all(link)
        (claimed,) = take(link, [job_id], [ability])
        ages.append(claimed.age_s)
        assert hand_back(link, [claimed.lease]) == {job_id}
        database.clock.advance(wait_s)
    assert spent(link, [job_id]) == {job_id: Spent(0, 0, 30.0)}
    release_all(link)
    ages += [claimed.age_s for claimed in take(link, [job_id], [ability])]
    database.clock.advance(LEASE_S + 1)
    assert [lost.state for lost in recover_leases(link)] == [JobState.READY]
    release_all(link)
    ages += [claimed.age_s for claimed in take(link, [job_id], [ability])]
    assert ages == [None, None, None, LEASE_S + 1]


def test_refused_writes_are_kept_up_to_a_bound(database: Database, link: Link) -> None:
    """A job keeps so many; of one that is gone nothing is kept."""
    (claimed,) = running(database, link)
    job_id = claimed.lease.job_id
    for number in range(REFUSALS_PER_JOB + 10):
        record_refusals(link, [RefusedWrite(job_id, number, "succeed"), RefusedWrite(uuid4(), 1, "retry")], WORKER)
    found = list_refusals(link, job_id)
    assert database.count("refusals") == len(found) == REFUSALS_PER_JOB
    assert (found[0].attempt, found[0].what, found[0].worker) == (0, "succeed", WORKER.name)
