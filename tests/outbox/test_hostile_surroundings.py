"""Settings, forks and hand-written rows around the core that must not reach into it."""

from __future__ import annotations

import os
import threading
from datetime import datetime

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue_many
from outbox.database.instants import EARLIEST, LATEST
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.budgets import spent
from outbox.leases.ending import retry
from outbox.leases.leasing import claim
from outbox.operating.dead_letters import count_dead_letters, list_dead_letters
from outbox.reading.jobs import show_job
from outbox.reading.searching import search_jobs
from outbox.settings.urls import sqlalchemy_engine
from support.database import Database
from support.jobs import ABILITIES, BROKEN, WORKER, dead, notes, release_all, running, submit, take
from support.waiting import until


@pytest.mark.parametrize("style", ["SQL, DMY", "German", "Postgres, MDY"])
def test_any_date_style_of_the_database_is_read(database: Database, style: str) -> None:
    """A DateStyle that is not ISO changes nothing for claims and views."""
    name = database.value("SELECT current_database()")
    database.rows(f"ALTER DATABASE \"{name}\" SET datestyle = '{style}'")
    link = database.link("styled")
    (claimed,) = running(database, link)
    found = show_job(link, claimed.lease.job_id)
    assert found is not None
    assert found[0].created_at.tzinfo is not None


def test_the_client_encoding_is_ours(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """PGCLIENTENCODING is for other programs: text goes through as UTF-8."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert database.link("encoded").connection().info.encoding == "utf-8"


def test_a_taken_attempt_number_does_not_stop_recovery(database: Database, link: Link) -> None:
    """One job whose history was meddled with costs its neighbours nothing: all expired leases are recovered."""
    claimed = running(database, link, 3)
    database.rows(
        "INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version,"
        " claimed_at, ended_at, outcome) SELECT id, 1, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'failed'"
        " FROM {s}.jobs"
        " WHERE id = %s",
        claimed[0].lease.job_id,
    )
    database.clock.advance(3600)
    assert len(recover_leases(link)) == 3


def test_rows_without_a_job_do_not_stop_recovery(database: Database, link: Link) -> None:
    """Leased rows whose jobs somebody deleted don't fill the batch in front of real ones."""
    claimed = running(database, link, 3)
    database.clock.advance(3600)
    for item in claimed[:2]:
        database.rows("DELETE FROM {s}.jobs WHERE id = %s", item.lease.job_id)
    assert [lease.job_id for lease in recover_leases(link, batch=2)] == [claimed[2].lease.job_id]


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
@pytest.mark.parametrize("column", ["run_at", "deadline_at", "created_at"])
def test_instants_that_python_cannot_read_are_refused(database: Database, column: str, value: str) -> None:
    """The table itself refuses an instant that would spoil a whole batch of claims."""
    submit(database)
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows(f"UPDATE {{s}}.jobs SET {column} = '{value}'")


@pytest.mark.parametrize(
    ("column", "values"),
    {
        **dict.fromkeys(
            ("due_at", "order_key", "deadline_at", "released_at", "lease_expires_at", "limit_next_at"),
            ("'infinity'", "'-infinity'", "'0044-03-15 BC'", "'20000-01-01'"),
        ),
        "release_count": ("2147483647", "-1"),
        "queue": ("repeat('x', 101)",),
        "tenant": ("repeat('x', 201)",),
    }.items(),
)
def test_what_would_stop_every_loop_is_refused_by_the_hot_list(
    database: Database, link: Link, column: str, values: tuple[str, ...]
) -> None:
    """All loops read its rows many at a time: none holds what no driver reads, no arithmetic bears or AMQP refuses."""
    running(database, link)
    for value in values:
        with pytest.raises(psycopg.errors.CheckViolation):
            database.rows(f"UPDATE {{s}}.outbox SET {column} = {value}")


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_a_row_that_outlived_its_job_stops_no_claim(database: Database, link: Link, state: str) -> None:
    """A hint of a job that has ended is claimed by nobody, and its neighbours are."""
    ids = submit(database, 3)
    release_all(link)
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.jobs SET state = %s, finished_at = {s}.clock() WHERE id = %s", state, ids[1])
    assert {item.lease.job_id for item in take(link, ids)} == {ids[0], ids[2]}


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_a_budget_at_the_end_of_its_numbers_stops_no_claim(database: Database, link: Link, value: int) -> None:
    """A job whose budget was meddled with is claimed with its neighbours."""
    ids = submit(database, 3)
    release_all(link)
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.jobs SET budget_start = %s WHERE id = %s", value, ids[1])
    assert {item.lease.job_id for item in take(link, ids)} == set(ids)


@pytest.mark.parametrize("value", ["infinity", "-infinity", "4714-11-24 BC", "294276-12-31"])
def test_a_history_that_begins_at_no_time_stops_no_neighbour(database: Database, link: Link, value: str) -> None:
    """One job's age can't be counted from it: claims, budgets and the recovery of leases go on for all jobs."""
    claimed = running(database, link, 3)
    ids = [item.lease.job_id for item in claimed]
    retry(link, [(item.lease, BROKEN, 0.0) for item in claimed])
    release_all(link)
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.attempts SET claimed_at = %s, ended_at = %s WHERE job_id = %s", value, value, ids[1])
    assert {item.lease.job_id for item in claim(link, ids, ABILITIES, WORKER, timed=True)} == set(ids)
    database.rows("UPDATE {s}.jobs SET lease_started_at = %s WHERE id = %s", value, ids[1])
    assert spent(link, ids).keys() == set(ids)
    database.clock.advance(3600)
    assert {lease.job_id for lease in recover_leases(link)} == set(ids)


@pytest.mark.parametrize(
    ("value", "shown"),
    [("infinity", LATEST), ("-infinity", EARLIEST), ("0044-03-15 BC", EARLIEST), ("20000-01-01", LATEST)],
)
def test_an_instant_that_python_cannot_hold_spoils_no_list(
    database: Database, link: Link, value: str, shown: datetime
) -> None:
    """Where no check refuses it, such as the end of a job, the nearest instant stands for it, and the rest is shown."""
    ids = dead(database, link, 3)
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.jobs SET finished_at = %s WHERE id = %s", value, ids[1])
    database.rows("UPDATE {s}.dead_letters SET failed_at = %s WHERE job_id = %s", value, ids[1])
    ends = {job.id: job.finished_at for job in search_jobs(link).jobs}
    assert ends[ids[1]] == shown
    assert ends.keys() == set(ids)
    assert {letter.job_id for letter in list_dead_letters(link)} == set(ids)
    assert [group.letters for group in count_dead_letters(link, ["code"])] == [3]


@pytest.mark.parametrize("value", ["[]", '{"attempts": "many"}', "9" * 6000, "[" * 5000 + "]" * 5000])
def test_what_a_cancel_is_said_to_have_come_after_spoils_no_list(database: Database, link: Link, value: str) -> None:
    """Where it can't be read nothing is known of it; the job itself, and those beside it, are shown."""
    ids = submit(database, 3)
    database.rows("UPDATE {s}.jobs SET cancelled_after = %s::jsonb WHERE id = %s", value, ids[1])
    assert {job.id: job.cancelled_after for job in search_jobs(link).jobs} == dict.fromkeys(ids)


def test_large_batches_in_opposite_order_do_not_deadlock(database: Database) -> None:
    """Keys are taken in one order over all statements of a call, so two large calls wait for each other in line."""
    payloads = notes(2500, "same")
    engine = database.engine(pool_size=2)
    gate, errors = threading.Barrier(2), list[BaseException]()

    def write(items: list) -> None:
        try:
            with engine.begin() as connection:
                connection.execute(sa.text("SELECT 1"))
                gate.wait(20)
                enqueue_many(connection, items, schema=database.schema)
        except sa.exc.DBAPIError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(items,)) for items in (payloads, payloads[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert database.count("jobs") == 2500


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_no_session_alive(database: Database) -> None:
    """When the parent's connection ends, its session ends, though a forked child lives on."""
    link = database.link("forks")
    backend = link.connection().info.backend_pid
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reading)
    try:
        os.close(os.dup(link.connection().fileno()))
        # As a killed parent would: the socket goes without a word.
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, link.connection().fileno())
        os.close(null)
        until(lambda: not database.rows("SELECT 1 FROM pg_stat_activity WHERE pid = %s", backend))
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_engines_prepare_nothing_on_the_server(database: Database) -> None:
    """A transaction pooler may stand in between: however often a statement runs, the session holds none prepared."""
    with database.keep(sqlalchemy_engine(database.url)).connect() as connection:
        for _ in range(10):
            connection.execute(sa.text("SELECT CAST(:n AS integer)"), {"n": 1})
        assert connection.execute(sa.text("SELECT count(*) FROM pg_prepared_statements")).scalar() == 0
