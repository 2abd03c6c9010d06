"""The doctor finds every kind of planted corruption, nothing on a sound database, and mends what it says it mends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from outbox import fan_in, set_queue
from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.doctor import CHECKS, Limits, Report, examine
from outbox.explaining.reasons import NO_HANDLER
from outbox.leases.ending import complete, park
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import claim
from outbox.leases.presence import Presence, Role, list_processes
from outbox.redrives.operations import steer_redrive
from support.database import Database
from support.doctoring import Planter, codes, subjects, traffic
from support.jobs import ABILITIES, WORKER, Note, notes, release_all, running, submit
from support.redrives import begin, dead, turn

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"
MENDED = {check.code for check in CHECKS if check.mend is not None}


def test_nothing_is_found_after_real_traffic(database: Database, link: Link, asked: Callable[..., Report]) -> None:
    """Jobs in every state and phase, ended in every way: all checks are made, and none finds anything."""
    traffic(database, link)
    report = asked()
    assert (report.disorders, report.unfinished) == ([], {})
    assert set(report.clean) == {check.code for check in CHECKS}
    assert report.healthy


def test_each_corruption_of_the_data_is_found_and_nothing_else(ill: Planter, asked: Callable[..., Report]) -> None:
    """One job for each kind, among sound ones: each is named under its kind, and only there, whatever a page holds."""
    expected = {code: {subject} for code, subject in ill.planted.items()}
    report = asked()
    assert subjects(report) == expected
    assert report.unfinished == {}
    assert subjects(asked(page=11)) == expected
    assert {check.code for check in CHECKS if check.walk is not None} == set(ill.planted)
    assert len({check.code for check in CHECKS}) == len(CHECKS) >= 30
    # Each of these has a test of its own below, or beside the schedules' other tests.
    others = {
        "queue_stuck",
        "queue_held",
        "no_consumer",
        "key_missing",
        "set_overdue",
        "set_member_gone",
        "no_relay",
        "horizon_held",
        "clock_skew",
    }
    others |= {"redrive_overdue", "settings_changed", "guard_missing", "schema_differs"}
    others |= {"schedule_broken", "schedule_overdue", "schedule_unreadable", "schedule_ahead"}
    others |= {"paused_long"}
    assert {check.code for check in CHECKS if check.walk is None} == others


@pytest.mark.parametrize("gone", ["relay", "consumer"])
def test_who_is_missing_is_told(database: Database, link: Link, asked: Callable[..., Report], gone: str) -> None:
    """Jobs that are due for long, and nobody who could move or run them."""
    traffic(database, link)
    database.rows("DELETE FROM {s}.processes WHERE role = %s", gone)
    assert codes(asked()) == set()
    database.rows("UPDATE {s}.jobs SET run_at = run_at - interval '2 min' WHERE state = 'ready'")
    database.rows("UPDATE {s}.outbox SET phase = 'owed', due_at = due_at - interval '2 min' WHERE phase = 'released'")
    found = subjects(asked())
    assert found.pop("queue_stuck", {"notes"}) == {"notes"}
    assert found == ({"no_relay": {"relay"}} if gone == "relay" else {"no_consumer": {"test.note 1"}})


def test_a_queue_that_stands_still_is_told(database: Database, link: Link, asked: Callable[..., Report]) -> None:
    """Due hints and none going out; a backlog that moves is none."""
    traffic(database, link)
    submit(database, 5)
    database.rows("UPDATE {s}.outbox SET due_at = due_at - interval '2 min' WHERE phase = 'owed'")
    database.rows("UPDATE {s}.jobs SET run_at = run_at - interval '2 min' WHERE state = 'ready'")
    assert codes(asked()) == set()
    database.rows("UPDATE {s}.outbox SET released_at = released_at - interval '2 min'")
    assert codes(asked()) == {"queue_stuck"}


def test_what_nobody_can_run_is_told_by_what_a_consumer_said(
    database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """A job that was given back for its kind counts, although it is not due for the moment."""
    traffic(database, link)
    [job_id] = submit(database)
    database.rows("UPDATE {s}.jobs SET version = 9 WHERE id = %s", job_id)
    later = "last_error = %s, due_at = now() + interval '1 min' WHERE job_id = %s"
    database.rows("UPDATE {s}.outbox SET " + later, NO_HANDLER, job_id)
    assert subjects(asked()) == {"no_consumer": {"test.note 9"}}


def test_a_key_that_nobody_has_is_told(database: Database, link: Link, asked: Callable[..., Report]) -> None:
    """Sealed jobs that have waited for a minute, beside consumers of their queue that all say which keys they have."""
    traffic(database, link)
    park(link, [(item.lease, "k1") for item in running(database, link, 2)])
    database.rows("UPDATE {s}.processes SET key_ids = '{k2}' WHERE role = 'consumer'")
    assert codes(asked()) == set(), "it has just been found missing"
    database.rows("SET session_replication_role = replica")  # the history is never changed
    database.rows("UPDATE {s}.attempts SET ended_at = ended_at - interval '2 min' WHERE error_code = 'unknown_key'")
    assert subjects(asked()) == {"key_missing": {"k1"}}
    database.rows("UPDATE {s}.processes SET key_ids = NULL WHERE role = 'consumer'")
    assert codes(asked()) == set(), "who says nothing may have it"
    database.rows("UPDATE {s}.processes SET key_ids = '{k2}' WHERE role = 'consumer'")
    having = Presence(
        Role.CONSUMER, worker_identity(), queues=["elsewhere"], abilities=ABILITIES, key_ids=lambda: ["k1"]
    )
    having.tell(link)
    assert subjects(asked()) == {"key_missing": {"k1"}}, "it works for another queue"
    able = Presence(Role.CONSUMER, worker_identity(), queues=["notes"], abilities=ABILITIES, key_ids=lambda: ["k1"])
    able.tell(link)
    assert codes(asked()) == set()
    assert ("k1",) in {process.keys for process in list_processes(link)}


def test_a_complete_set_whose_job_still_waits_is_told(
    database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """A set that is open or has just become complete is none; nobody's keeping time makes it one."""
    traffic(database, link)
    members = running(database, link, 2)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        ids = [item.lease.job_id for item in members]
        waiting = fan_in(connection, ids, Note(key="then"), schema=database.schema)
    database.rows("UPDATE {s}.joins SET created_at = created_at - interval '1 hour'")
    complete(link, [members[0].lease])
    database.rows("UPDATE {s}.jobs SET finished_at = finished_at - interval '1 hour' WHERE id = %s", ids[0])
    assert codes(asked()) <= {"succeeded_without_attempt"}
    complete(link, [members[1].lease])
    assert "set_overdue" not in codes(asked())
    database.rows("UPDATE {s}.jobs SET finished_at = finished_at - interval '1 hour' WHERE id = %s", ids[1])
    assert subjects(asked())["set_overdue"] == {str(waiting.id)}


def test_a_redrive_whose_turn_does_not_come_is_told(
    database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """One that somebody's transaction holds gets none, though a relay runs; one that waits for its pace is as it is."""
    traffic(database, link)
    engine = database.engine(poolclass=sa.NullPool)
    dead(database, link, 2)
    database.rows("UPDATE {s}.redrive_operations SET next_at = 'infinity'")  # those of the traffic
    operation = begin(engine, rate=1)
    assert "redrive_overdue" not in codes(asked())
    database.rows("UPDATE {s}.redrive_operations SET next_at = next_at - interval '2 min'")
    with engine.begin() as connection:
        steer_redrive(connection, operation, "pause", by="me", reason="x", schema=database.schema)
        assert turn(link) is None
        assert subjects(asked())["redrive_overdue"] == {str(operation)}
        connection.rollback()
    assert turn(link) is not None
    assert "redrive_overdue" not in codes(asked())
    database.rows("UPDATE {s}.redrive_operations SET state = 'paused', next_at = next_at - interval '2 min'")
    assert "redrive_overdue" not in codes(asked())


def test_a_set_whose_job_is_gone_is_told(database: Database, link: Link, asked: Callable[..., Report]) -> None:
    """It waits for a success that nothing can bring; one that waits for any end does not."""
    gone, left = running(database, link, 2)
    ids = [item.lease.job_id for item in (gone, left)]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        waiting = fan_in(connection, ids, Note(key="then"), schema=database.schema)
        fan_in(connection, ids, Note(key="any"), on="ended", schema=database.schema)
    assert "set_member_gone" not in codes(asked())
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", ids[0])
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", ids[0])
    assert subjects(asked())["set_member_gone"] == {str(waiting.id)}


def test_clocks_that_differ_are_told(database: Database, asked: Callable[..., Report]) -> None:
    """By how much, and which is ahead; the clock in place of ours is told, too."""
    database.clock.advance(3600)
    [skew] = [found for found in asked().disorders if found.check.code == "clock_skew"]
    assert re.fullmatch(r"the database's clock is 3(600\.0|599\.\d) s ahead of this machine's", skew.cases[0].detail)
    database.clock.advance(-7200)
    [skew] = [found for found in asked().disorders if found.check.code == "clock_skew"]
    assert "s behind this machine's" in skew.cases[0].detail


def test_what_holds_back_the_cleaning_up_is_told(database: Database, asked: Callable[..., Report]) -> None:
    """A transaction that has a snapshot or has written counts from its age on."""
    with database.connect(autocommit=False, application_name="a\x1bdump") as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()[0]
        other.execute(database.sql("CREATE TABLE {s}.holds ()"))
        assert f"session {pid}" in subjects(asked(old_s=0.0))["horizon_held"]
        assert "horizon_held" not in codes(asked(old_s=3600.0))


def test_who_holds_a_queue_is_told(database: Database, asked: Callable[..., Report]) -> None:
    """A change of limits that is not committed counts once it is old enough, and only where something waits for it."""
    who = {"by": "ada", "reason": "x", "schema": database.schema}
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "notes", max_running=1, **who)
        set_queue(connection, "free", runway=9, **who)
    with database.connect(autocommit=False, application_name="psql") as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()[0]
        other.execute(database.sql("SELECT 1 FROM {s}.queue_limits FOR NO KEY UPDATE"))
        [found] = [one for one in asked(overdue_s=0.0).disorders if one.check.code == "queue_held"]
        assert [case.subject for case in found.cases] == ["queue notes"]
        assert f"session {pid}" in found.cases[0].detail
        assert "application psql" in found.cases[0].detail
        assert "queue_held" not in codes(asked(overdue_s=3600.0))
    assert "queue_held" not in codes(asked(overdue_s=0.0))


def test_a_changed_schema_is_told_by_what_it_harms(database: Database, asked: Callable[..., Report]) -> None:
    """Storage settings, guards and the rest are told apart."""
    for harm in (
        "ALTER TABLE {s}.jobs SET (fillfactor = 90)",
        "ALTER TABLE {s}.outbox RESET (autovacuum_vacuum_threshold)",
        "ALTER TABLE {s}.jobs DISABLE TRIGGER jobs_moves",
        "DROP TRIGGER outbox_wake ON {s}.outbox",
        "CREATE INDEX mine ON {s}.jobs (state)",
    ):
        database.rows(harm)
    assert subjects(asked()) == {
        "settings_changed": {"table jobs", "table outbox"},
        "guard_missing": {"trigger jobs.jobs_moves", "trigger outbox.outbox_wake"},
        "schema_differs": {"index jobs.mine"},
    }


def test_what_can_t_be_looked_at_is_named_and_hides_nothing(
    database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """A missing table spoils its own checks; the others are made, and find."""
    [job_id] = submit(database)
    database.rows("DELETE FROM {s}.outbox")
    database.rows("DROP TABLE {s}.effects")
    report = asked()
    of_effects = {"effects_orphaned", "effects_pending", "effects_uncertain", "succeeded_unsettled"}
    assert of_effects == set(report.unfinished)
    assert subjects(report)["job_without_outbox"] == {str(job_id)}
    assert not report.healthy


def test_an_end_of_the_time_is_told_with_the_place(database: Database, asked: Callable[..., Report]) -> None:
    """With no time left nothing large is walked, and the report says so instead of calling it well."""
    submit(database)
    report = asked(within_s=0.0)
    assert "jobs from before now were not looked at" in report.unfinished["job_without_outbox"]
    assert "no_relay" in report.clean
    assert not report.healthy


def test_cases_beyond_the_kept_ones_are_counted(database: Database, asked: Callable[..., Report]) -> None:
    """The number is told in full, the cases are bounded."""
    submit(database, payloads=notes(30))
    database.rows("DELETE FROM {s}.outbox")
    [found] = asked(page=7, cases=5).disorders
    assert (found.count, len(found.cases), found.more) == (30, 5, False)


def test_a_server_that_is_away_is_an_error() -> None:
    """Nothing is called well that was not looked at."""
    engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", connect_args={"connect_timeout": 2})
    with pytest.raises(sa.exc.OperationalError):
        examine(engine)


def test_the_guide_lists_every_check() -> None:
    """The operating guide's table has each code with its severity, what is wrong, and whether it is mended."""
    page = GUIDE.read_text(encoding="utf-8")
    for check in CHECKS:
        mends = "mended: " if check.mend else ""
        assert f"| `{check.code}` | {check.severity} | {check.title} | {mends}{check.remedy} |" in page


def test_the_words_of_a_refusal_stand_in_the_statement() -> None:
    """The statement that finds what nobody can run knows the reason by its text."""
    assert f"'{NO_HANDLER}'" in statements_for("outbox").for_psycopg("doctor_no_consumer")


def test_claims_and_walks_share_a_job(database: Database, link: Link) -> None:
    """A check waits for nobody: a row that is being claimed is looked at as it was."""
    ids = submit(database)
    release_all(link)
    with link.transaction():
        assert claim(link, ids, ABILITIES, WORKER)
        found = examine(database.engine(poolclass=sa.NullPool), schema=database.schema, limits=Limits(old_s=1e6))
    assert codes(found) == set()
