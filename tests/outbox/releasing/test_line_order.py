"""Who stands where in a queue's line: priorities, retries that wait, jobs that nobody here can run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox.database.link import Link
from outbox.leases.ending import retry
from outbox.leases.leasing import claim, refuse
from outbox.reading.jobs import database_time
from outbox.releasing.relaying import due_queues, release, stray_hints
from support.database import Database
from support.jobs import ABILITIES, BROKEN, WORKER, NewerNote, Note, notes, release_all, running, submit

pytestmark = pytest.mark.usefixtures("sound")


def test_low_priorities_are_found_and_come_last(database: Database, link: Link) -> None:
    """A due job of negative priority is released at once if nothing else is due, else after everything else."""
    (low,) = submit(database, 1, priority=-50)
    assert [queue.name for queue in due_queues(link, runway=10)] == ["notes"]
    (usual,) = submit(database, 1)
    (high,) = submit(database, 1, priority=50)
    assert [hint.job_id for hint in release_all(link)] == [high, usual, low]


def test_a_low_priority_ages_past_newer_jobs(database: Database, link: Link) -> None:
    """After a minute per step an old job of low priority goes before a new one of usual priority."""
    (old,) = submit(database, 1, priority=-5)
    database.clock.advance(6 * 60)
    (new,) = submit(database, 1)
    assert [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)] == [old]
    assert [hint.job_id for hint in release_all(link)] == [new]


def test_a_retry_that_waits_stands_behind_what_is_due(database: Database, link: Link) -> None:
    """Looking for due work steps over no retry that waits: its place in line is where it will be due."""
    (claimed,) = running(database, link)
    retry(link, [(claimed.lease, BROKEN, 600.0)])
    order_key, due_at = database.rows("SELECT order_key, due_at FROM {s}.outbox")[0]
    assert order_key == due_at
    assert order_key - database_time(link) > timedelta(minutes=9)


def test_foreign_jobs_go_to_the_end_of_the_line(database: Database, link: Link) -> None:
    """Jobs that nobody here can run, once refused, no longer stand in front of one that somebody can."""
    foreign = submit(database, payloads=[NewerNote(key=f"n{number}") for number in range(20)])
    (mine,) = submit(database)
    ids = [hint.job_id for hint in release(link, "notes", batch=20, rehint_after_s=10)]
    assert set(ids) == set(foreign)
    assert claim(link, ids, ABILITIES, WORKER) == []
    refuse(link, ids, ABILITIES)
    database.clock.advance(120)
    assert release(link, "notes", batch=1, rehint_after_s=10)[0].job_id == mine


def test_a_consumer_without_broker_passes_foreign_jobs_by(database: Database, link: Link) -> None:
    """Release and the look for strays take only what the caller can run, however much else stands in front."""
    submit(database, payloads=[NewerNote(key=f"n{number}") for number in range(300)])
    (mine,) = submit(database)
    assert [hint.job_id for hint in release(link, "notes", batch=5, rehint_after_s=10, abilities=ABILITIES)] == [mine]
    release_all(link)
    database.clock.advance(5)
    assert stray_hints(link, ["notes"], age_s=2, batch=5, abilities=ABILITIES) == [mine]


def test_a_hint_cannot_make_a_consumer_work_for_another_queue(database: Database, link: Link) -> None:
    """The claim takes only jobs of the queues that its consumer serves."""
    (job_id,) = submit(database)
    release_all(link)
    assert claim(link, [job_id], ABILITIES, WORKER, queues=["others"]) == []
    assert len(claim(link, [job_id], ABILITIES, WORKER, queues=["notes"])) == 1


def test_waiting_jobs_cost_a_look_nothing(database: Database, link: Link) -> None:
    """With many jobs due later, a look for due work reads a handful of rows."""
    submit(database, payloads=notes(3000), run_at=database_time(link) + timedelta(minutes=30))
    submit(database, payloads=[Note(key="now")])
    database.rows("ANALYZE {s}.outbox")
    plan = "\n".join(
        row[0]
        for row in database.rows(
            "EXPLAIN (ANALYZE, TIMING OFF) "
            + database.statements.for_psycopg("due_queues")
            .replace("%(runway)s", "10")
            .replace("%(queues)s", "'{}'")
            .replace("%(released_since)s", "'{}'")
        )
    )
    removed = [int(line.split(":")[1]) for line in plan.splitlines() if "Rows Removed by Filter" in line]
    assert sum(removed) < 100, plan
