"""Most of the doctor's checks look at several columns, rows or processes: each of them is told by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import cancel, fan_in
from outbox.database.link import Link
from outbox.doctor import Limits
from outbox.doctor.examining import Examination
from outbox.leases.ending import complete, fail
from outbox.leases.identity import worker_identity
from outbox.leases.presence import Presence, Role
from outbox.migrations import upgrade_database
from outbox.servers import postgres
from outbox.submitting.submission import HELD
from support.database import Database
from support.doctoring import before_instants
from support.jobs import ABILITIES, BROKEN, Note, release_all, running, submit

JOB = "UPDATE {s}.jobs SET "
OWE = "UPDATE {s}.outbox SET "
WAITS, RUNS, DONE, DEAD, LEFT, NONE = "ready", "running", "succeeded", "failed", "cancelled", "no job"
ATTEMPT = (
    "INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at, "
    "ended_at, outcome) VALUES (%s, 7, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'retried')"
)
CLOSED = "INSERT INTO {s}.joins (job_id, condition, members, created_at, closed_at, outcome) VALUES "
CLOSED += "(%s, 'ended', 1, now(), now(), 'started')"
LETTER = "INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at) VALUES "
LETTER += "(%s, 'k', 'q', 't', 'c', now())"
DEEP = "payload = (repeat('[', 600) || repeat(']', 600))::jsonb"

# What it is done to, what is done, and the kinds under which it must be told. %s stands for the job's id.
SIDES: list[tuple[str, str | tuple[str, ...], str | tuple[str, ...]]] = [
    (DONE, "DELETE FROM {s}.attempts WHERE job_id = %s", ("succeeded_without_attempt", "attempts_missing")),
    (DONE, ATTEMPT, "attempts_missing"),
    (DEAD, JOB + "last_error_class = NULL WHERE id = %s", "failed_without_error"),
    (DEAD, JOB + "last_error_code = NULL WHERE id = %s", "failed_without_error"),
    (LEFT, JOB + "cancel_requested_by = NULL WHERE id = %s", "cancelled_without_reason"),
    (LEFT, JOB + "cancel_reason = NULL WHERE id = %s", "cancelled_without_reason"),
    (LEFT, "DELETE FROM {s}.audit WHERE subject = %s::text", "cancelled_without_reason"),
    (DONE, JOB + "finished_at = '-infinity' WHERE id = %s", "job_instants"),
    (DONE, JOB + "finished_at = '9999-12-31Z' WHERE id = %s", "job_instants"),
    (DONE, JOB + "lease_started_at = 'infinity' WHERE id = %s", "job_instants"),
    (LEFT, JOB + "cancel_requested_at = 'infinity' WHERE id = %s", "job_instants"),
    (RUNS, OWE + "phase = 'owed', lease_token = NULL, lease_expires_at = NULL WHERE job_id = %s", "phase_mismatch"),
    (RUNS, OWE + "released_at = 'infinity' WHERE job_id = %s", "outbox_instants"),
    (WAITS, OWE + "due_at = 'infinity' WHERE job_id = %s", "outbox_instants"),
    (WAITS, OWE + "order_key = '-infinity' WHERE job_id = %s", "outbox_instants"),
    (WAITS, OWE + "queue = 'elsewhere' WHERE job_id = %s", "copies_differ"),
    (RUNS, OWE + "tenant = 'elsewhere' WHERE job_id = %s", "copies_differ"),
    (WAITS, OWE + "deadline_at = now() + interval '1 h' WHERE job_id = %s", "copies_differ"),
    (WAITS, JOB + DEEP + " WHERE id = %s", "payload_unreadable"),
    (
        WAITS,
        (
            CLOSED,
            JOB + f"run_at = '{HELD}' WHERE id = %s",
            OWE + f"due_at = '{HELD}' WHERE job_id = %s",
        ),
        "held_for_ever",
    ),
    (
        WAITS,
        (
            JOB + "deadline_at = date_trunc('hour', now()) - interval '1 h' WHERE id = %s",
            OWE + "phase = 'released', released_at = now(), deadline_at = date_trunc('hour', now()) - interval '1 h' "
            "WHERE job_id = %s",
        ),
        "deadline_overdue",
    ),
    (
        RUNS,
        (
            JOB + "deadline_at = date_trunc('hour', now()) - interval '1 h' WHERE id = %s",
            OWE + "deadline_at = date_trunc('hour', now()) - interval '1 h' WHERE job_id = %s",
        ),
        (),  # it may still finish
    ),
    (LEFT, LETTER, "dead_letter_stray"),
    (NONE, LETTER, "dead_letter_stray"),
]


def told(database: Database, *only: str, **limits: float) -> dict[str, set[str]]:
    """Return what each kind was found about, or those that are named. No stranger's transaction counts."""
    asked = Limits(**({"old_s": 1e6} | limits))
    engine = database.engine(pool_size=1)
    report = Examination(engine, database.schema, asked, lambda check: not only or check.code in only).run()
    engine.dispose()
    assert report.unfinished == {}
    return {disorder.check.code: {case.subject for case in disorder.cases} for disorder in report.disorders}


def stock(database: Database, link: Link) -> dict[str, Iterator[UUID]]:
    """Return as many jobs of each state as are asked for; those that wait are due tomorrow."""
    count = len(SIDES)
    items = running(database, link, 4 * count)
    jobs = [item.lease.job_id for item in items]
    complete(link, [item.lease for item in items[:count]])
    fail(link, [(item.lease, BROKEN) for item in items[count : 2 * count]])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        for job_id in jobs[2 * count : 3 * count]:
            cancel(connection, job_id, by="ops", reason="wrong", schema=database.schema)
    later = submit(database, count, run_at=database.value("SELECT {s}.clock() + interval '1 day'"))
    parts = [jobs[:count], jobs[count : 2 * count], jobs[2 * count : 3 * count], jobs[3 * count :], later]
    made = {state: iter(part) for state, part in zip((DONE, DEAD, LEFT, RUNS, WAITS), parts, strict=True)}
    return made | {NONE: iter([uuid4() for _ in range(count)])}


def test_every_side_of_a_check_is_told(database: Database, link: Link) -> None:
    """Each column and each row that a check looks at, spoiled alone and on a job of its own, among sound ones."""
    jobs = stock(database, link)
    assert told(database) == {}
    expected: dict[str, set[str]] = defaultdict(set)
    database.rows("SET session_replication_role = replica")
    for state, statements, codes in SIDES:
        job_id = next(jobs[state])
        for statement in [statements] if isinstance(statements, str) else statements:
            with before_instants(database) if "outbox_instants" in codes else nullcontext():
                database.rows(statement, *[job_id] * statement.count("%s"))
        for code in [codes] if isinstance(codes, str) else codes:
            expected[code].add(str(job_id))
    assert told(database) == expected


def test_letters_that_are_still_being_written_are_not_missed(database: Database, link: Link) -> None:
    """After the upgrade that brought them, failed jobs get theirs little by little."""
    [item] = running(database, link)
    fail(link, [(item.lease, BROKEN)])
    database.rows("DELETE FROM {s}.dead_letters")
    database.rows("INSERT INTO {s}.dead_letter_backlog (place) VALUES (gen_random_uuid())")
    assert told(database, "dead_letter_missing") == {}
    database.rows("DELETE FROM {s}.dead_letter_backlog")
    assert told(database, "dead_letter_missing") == {"dead_letter_missing": {str(item.lease.job_id)}}


def staff(link: Link) -> None:
    """Announce one relay and one consumer."""
    Presence(Role.RELAY, worker_identity()).tell(link)
    Presence(Role.CONSUMER, worker_identity(), queues=["notes"], abilities=ABILITIES).tell(link)


@pytest.mark.parametrize("phase", ["owed", "released"])
def test_a_consumer_counts_for_what_it_does_and_while_it_lives(database: Database, link: Link, phase: str) -> None:
    """Another queue, kind, version or role, or no sign of life: each alone leaves the jobs without a consumer."""
    staff(link)
    submit(database)
    release_all(link)
    database.rows(JOB + "run_at = run_at - interval '3 min'")
    database.rows(
        OWE + "due_at = due_at - interval '2 min', released_at = released_at - interval '2 min', phase = %s", phase
    )
    beside = {} if phase == "released" else {"queue_stuck": {"notes"}}
    kinds = ("no_consumer", "queue_stuck")
    assert told(database, *kinds) == beside
    for spoiled in (
        "works_for = '{others}'",
        "kinds = '{test.other}'",
        "versions = '{2}'",
        "role = 'relay'",
        "seen_at = seen_at - interval '2 min'",
    ):
        database.rows(f"UPDATE {{s}}.processes SET {spoiled} WHERE role = 'consumer'")
        assert told(database, *kinds) == beside | {"no_consumer": {"test.note 1"}}, spoiled
        database.rows("DELETE FROM {s}.processes")
        staff(link)


@pytest.mark.parametrize("work", ["owed", "leased"])
def test_a_relay_counts_while_it_lives(database: Database, link: Link, work: str) -> None:
    """Once it has given no sign for long, hints that are due and leases that ended long ago wait for one."""
    staff(link)
    if work == "leased":
        running(database, link)
        database.rows(OWE + "due_at = due_at - interval '1 h', lease_expires_at = {s}.clock() - interval '1 h'")
        beside = {"lease_overdue"}
    else:
        submit(database)
        database.rows(JOB + "run_at = run_at - interval '1 h'")
        database.rows(OWE + "due_at = due_at - interval '1 h'")
        beside = {"queue_stuck"}
    kinds = ("no_relay", *beside)
    assert told(database, *kinds).keys() == beside
    database.rows("UPDATE {s}.processes SET seen_at = seen_at - interval '2 min' WHERE role = 'relay'")
    assert told(database, *kinds).keys() == beside | {"no_relay"}


def test_a_set_that_nobody_waits_for_any_more_is_sound(database: Database, link: Link) -> None:
    """Its member is gone, and so is the job that waited for it."""
    [item] = running(database, link)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        waiting = fan_in(connection, [item.lease.job_id], Note(key="then"), schema=database.schema)
    complete(link, [item.lease])
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", item.lease.job_id)
    database.rows("DELETE FROM {s}.attempts WHERE job_id = %s", item.lease.job_id)
    assert told(database, "set_member_gone") == {"set_member_gone": {str(waiting.id)}}
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, waiting.id, by="ops", reason="wrong", schema=database.schema)
    assert told(database, "set_member_gone") == {}


def test_a_guard_that_does_something_else_and_an_older_revision_are_told(database: Database) -> None:
    """A function of the same name guards nothing; tables of another release are compared with theirs."""
    database.rows(
        "CREATE OR REPLACE FUNCTION {s}.refuse_effect_change() RETURNS trigger LANGUAGE plpgsql VOLATILE AS "
        "'BEGIN RETURN NEW; END'"
    )
    assert told(database, "guard_missing") == {"guard_missing": {"function refuse_effect_change()"}}
    database.rows("UPDATE {s}.outbox_schema_version SET version_num = '0001'")
    assert "revision" in told(database, "schema_differs")["schema_differs"]


def test_what_holds_the_horizon_without_a_session_is_told() -> None:
    """A prepared transaction outlives its session and a restart; a slot that nobody reads holds back for ever."""
    settings = {"fsync": "off", "wal_level": "logical", "max_prepared_transactions": "2"}
    with postgres(private=True, settings=settings) as server:
        url = server.create_database("held")
        upgrade_database(url, "outbox")
        database = Database(url)
        try:
            with database.connect(autocommit=False) as other:
                other.execute("CREATE TABLE public.mine ()")
                other.execute("PREPARE TRANSACTION 'forgotten'")
            assert told(database, "horizon_held", old_s=3600.0) == {}
            assert told(database, "horizon_held", old_s=0.0)["horizon_held"] >= {"prepared transaction forgotten"}
            database.rows("ROLLBACK PREPARED 'forgotten'")
            database.rows("SELECT pg_create_logical_replication_slot('unread', 'test_decoding')")
            assert told(database, "horizon_held") == {"horizon_held": {"replication slot unread"}}
        finally:
            database.close()
