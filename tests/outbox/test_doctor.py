"""The doctor finds every kind of planted corruption, nothing on a sound database, and mends what it says it mends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import cancel, fan_in, redrive
from outbox.doctor import CHECKS, Limits, Report, examine, mend
from outbox.ending import complete, fail, hand_back, retry
from outbox.identity import worker_identity
from outbox.keeping import recover_leases
from outbox.leasing import claim
from outbox.link import Link
from outbox.presence import Presence, Role
from outbox.reasons import NO_HANDLER
from outbox.statements import statements_for
from outbox.submission import HELD
from outbox_schemas import NameRefused
from support.database import Database
from support.invariants import check_invariants
from support.jobs import ABILITIES, BROKEN, WORKER, Note, notes, release_all, running, submit, take

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
MENDED = {check.code for check in CHECKS if check.mend is not None}


def codes(report: Report) -> set[str]:
    """Return the kinds that were found."""
    return {disorder.check.code for disorder in report.disorders}


def subjects(report: Report) -> dict[str, set[str]]:
    """Return what each kind was found about."""
    return {disorder.check.code: {case.subject for case in disorder.cases} for disorder in report.disorders}


@pytest.fixture
def asked(database: Database) -> Callable[..., Report]:
    """Return the doctor for this test's database, who tells of no stranger's transactions."""
    engine = database.engine(pool_size=1)
    return lambda **limits: examine(engine, schema=database.schema, limits=Limits(**({"old_s": 1e6} | limits)))


def traffic(database: Database, link: Link) -> None:
    """Send jobs every way that there is, and leave some in each state."""
    Presence(Role.RELAY, worker_identity()).tell(link)
    Presence(Role.CONSUMER, worker_identity(), queues=["notes"], abilities=ABILITIES).tell(link)
    submit(database, 2)
    submit(database, 2, run_at=database.value("SELECT {s}.clock() + interval '1 day'"), priority=-50)
    done, back, again, failed, dead, lost, kept = running(database, link, 7, priority=100)
    complete(link, [done.lease])
    hand_back(link, [back.lease])
    retry(link, [(again.lease, BROKEN, 900)])
    fail(link, [(failed.lease, BROKEN), (dead.lease, BROKEN)])
    database.rows("UPDATE {s}.outbox SET lease_expires_at = {s}.clock() WHERE job_id = %s", lost.lease.job_id)
    recover_leases(link, [lost.lease.job_id])
    [gone] = submit(database)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, gone, by="ops", reason="wrong", schema=database.schema)
        cancel(connection, kept.lease.job_id, by="ops", reason="wrong", schema=database.schema)
        redrive(connection, dead.lease.job_id, by="ops", reason="mended", schema=database.schema)
        redrive(connection, gone, by="ops", reason="not so wrong", schema=database.schema)
    running(database, link, 2)
    release_all(link)


def test_nothing_is_found_after_real_traffic(database: Database, link: Link, asked: Callable[..., Report]) -> None:
    """Jobs in every state and phase, ended in every way: all checks are made, and none finds anything."""
    traffic(database, link)
    report = asked()
    assert (report.disorders, report.unfinished) == ([], {})
    assert set(report.clean) == {check.code for check in CHECKS}
    assert report.healthy


class Planter:
    """Plants corruption behind the guards' back, one job for each kind."""

    def __init__(self, database: Database, link: Link) -> None:
        self._database = database
        self._link = link
        self.planted: dict[str, str] = {}

    def plant(self, code: str, job_id: UUID, *statements: str) -> None:
        """Run statements about a job, in which %s stands for its id."""
        for statement in statements:
            self._database.rows(statement, *[job_id] * statement.count("%s"))
        self.planted[code] = str(job_id)

    def ready(self) -> UUID:
        """Return a job that waits."""
        return submit(self._database)[0]

    def running(self) -> UUID:
        """Return a job that runs."""
        job_id: UUID = running(self._database, self._link)[0].lease.job_id
        return job_id

    def ended(self, how: str = "succeeded") -> UUID:
        """Return a job that has ended."""
        [claimed] = running(self._database, self._link)
        if how == "succeeded":
            complete(self._link, [claimed.lease])
        else:
            fail(self._link, [(claimed.lease, BROKEN)])
        return claimed.lease.job_id


OWE = "UPDATE {s}.outbox SET "
EFFECT = (
    "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) VALUES (%s, 'charge', "
    "'STATE', '', 1, now())"
)


@pytest.fixture
def ill(database: Database, link: Link) -> Planter:
    """Return a database after real traffic, with one job for each kind of corruption."""
    traffic(database, link)
    database.rows("SET session_replication_role = replica")
    planter = Planter(database, link)
    plant, ready = planter.plant, planter.ready
    plant("job_without_outbox", ready(), "DELETE FROM {s}.outbox WHERE job_id = %s")
    plant("succeeded_without_attempt", planter.ended(), "UPDATE {s}.attempts SET outcome = 'retried' WHERE job_id = %s")
    plant("attempts_missing", planter.ended("failed"), "DELETE FROM {s}.attempts WHERE job_id = %s")
    plant(
        "attempt_ended_early",
        planter.running(),
        "INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, "
        "claimed_at, ended_at, outcome) VALUES (%s, 1, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'retried')",
    )
    plant(
        "failed_without_error",
        planter.ended("failed"),
        "UPDATE {s}.jobs SET last_error_class = NULL, last_error_code = NULL WHERE id = %s",
    )
    job = planter.ended()
    plant(
        "cancelled_without_reason",
        job,
        "UPDATE {s}.jobs SET state = 'cancelled' WHERE id = %s",
        "UPDATE {s}.attempts SET outcome = 'cancelled' WHERE job_id = %s",
    )
    plant("dead_letter_missing", planter.ended("failed"), "DELETE FROM {s}.dead_letters WHERE job_id = %s")
    plant(
        "dead_letter_stray",
        planter.ended(),
        "INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at) "
        "VALUES (%s, 'k', 'q', 't', 'c', now())",
    )
    plant("job_instants", planter.ended(), "UPDATE {s}.jobs SET finished_at = 'infinity' WHERE id = %s")
    plant("outbox_without_job", ready(), "DELETE FROM {s}.jobs WHERE id = %s")
    plant(
        "ended_with_outbox",
        planter.ended(),
        "INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at) VALUES "
        "(%s, 'notes', 'default', now(), now())",
    )
    plant(
        "phase_mismatch",
        ready(),
        OWE + "phase = 'leased', lease_token = gen_random_uuid(), lease_expires_at = now() + interval '1 h' "
        "WHERE job_id = %s",
    )
    plant("token_mismatch", planter.running(), OWE + "lease_token = gen_random_uuid() WHERE job_id = %s")
    plant("copies_differ", ready(), OWE + "queue = 'elsewhere', deadline_at = now() + interval '1 h' WHERE job_id = %s")
    plant("outbox_instants", planter.running(), OWE + "lease_expires_at = 'infinity' WHERE job_id = %s")
    plant(
        "payload_unreadable",
        ready(),
        "UPDATE {s}.jobs SET payload = ('{{\"n\": ' || repeat('7', 6000) || '}}')::jsonb WHERE id = %s".replace(
            "{{", "{"
        ).replace("}}", "}"),
    )
    plant("lease_overdue", planter.running(), OWE + "lease_expires_at = now() - interval '2 min' WHERE job_id = %s")
    job = ready()
    release_all(link)
    plant("hint_overdue", job, OWE + "due_at = now() - interval '11 min' WHERE job_id = %s")
    late = "date_trunc('hour', now()) - interval '1 hour' WHERE "
    plant(
        "deadline_overdue",
        ready(),
        OWE + f"deadline_at = {late} job_id = %s",
        f"UPDATE {{s}}.jobs SET deadline_at = {late} id = %s",
    )
    attempt = (
        "INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, "
        "claimed_at, ended_at, outcome) VALUES (%s, 1, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'failed')"
    )
    plant("attempts_orphaned", uuid4(), attempt)
    plant("effects_orphaned", uuid4(), EFFECT.replace("STATE", "not_done"))
    plant("effects_pending", planter.ended(), EFFECT.replace("STATE", "pending"))
    plant("effects_uncertain", planter.ended("failed"), EFFECT.replace("STATE", "uncertain"))
    plant(
        "checkpoints_orphaned",
        uuid4(),
        "INSERT INTO {s}.checkpoints (job_id, name, attempt, value, updated_at) VALUES (%s, 'c', 1, '1', now())",
    )
    held = f"'{HELD}' WHERE "
    plant(
        "held_for_ever",
        ready(),
        f"UPDATE {{s}}.jobs SET run_at = {held} id = %s",
        OWE + f"due_at = {held} job_id = %s",
    )
    # At the end: whatever makes another job run releases all hints that are due.
    [later] = submit(database, run_at=database.value("SELECT {s}.clock() + interval '1 day'"))
    plant("due_too_early", later, OWE + "due_at = now(), order_key = now() WHERE job_id = %s")
    plant("order_key_ahead", ready(), OWE + "order_key = now() + interval '9 days' WHERE job_id = %s")
    database.rows("SET session_replication_role = origin")
    return planter


def test_each_corruption_of_the_data_is_found_and_nothing_else(ill: Planter, asked: Callable[..., Report]) -> None:
    """One job for each kind, among sound ones: each is named under its kind, and only there, whatever a page holds."""
    expected = {code: {subject} for code, subject in ill.planted.items()}
    report = asked()
    assert subjects(report) == expected
    assert report.unfinished == {}
    assert subjects(asked(page=11)) == expected
    assert {check.code for check in CHECKS if check.walk is not None} == set(ill.planted)
    assert len({check.code for check in CHECKS}) == len(CHECKS) >= 30
    # Each of these has a test of its own below.
    others = {"queue_stuck", "no_consumer", "set_overdue", "set_member_gone", "no_relay", "horizon_held", "clock_skew"}
    others |= {"settings_changed", "guard_missing", "schema_differs"}
    assert {check.code for check in CHECKS if check.walk is None} == others


def test_mending_leaves_what_only_a_person_can_mend(
    ill: Planter, database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """Each mendable job is mended and audited, the rest is as it was, and what was mended runs to its end."""
    engine = database.engine(pool_size=1)
    _, done = mend(engine, by="ops", reason="a bad night", schema=database.schema)
    assert {item.code: [str(job_id) for job_id in item.job_ids] for item in done} == {
        code: [subject] for code, subject in ill.planted.items() if code in MENDED
    }
    query = "SELECT subject, detail ->> 'check' FROM {s}.audit WHERE action = 'doctor.mend' AND actor = 'ops' AND "
    audited = database.rows(query + "reason = 'a bad night'")
    assert {code: subject for subject, code in audited} == {
        code: subject for code, subject in ill.planted.items() if code in MENDED
    }
    assert codes(asked()) == ill.planted.keys() - MENDED
    assert mend(engine, by="ops", reason="again", schema=database.schema)[1] == []

    expected = {"token_mismatch", "outbox_instants"}
    recovered = {str(lease.job_id) for lease in recover_leases(link)}
    assert {ill.planted[code] for code in expected} <= recovered
    claimed = {str(hint.job_id) for hint in release_all(link)}
    runnable = {"job_without_outbox", "phase_mismatch", "copies_differ", "order_key_ahead", *expected}
    assert {ill.planted[code] for code in runnable} <= claimed
    taken = take(link, [UUID(ill.planted[code]) for code in runnable])
    assert len(complete(link, [item.lease for item in taken])) == len(runnable)


def test_a_mended_lease_is_its_workers_until_somebody_takes_it(database: Database, link: Link) -> None:
    """A running job whose row was lost gets it back under its own token, so that its living worker still completes."""
    [claimed] = running(database, link)
    database.rows("DELETE FROM {s}.outbox")
    _, done = mend(database.engine(pool_size=1), by="ops", reason="r", schema=database.schema)
    assert [item.code for item in done] == ["job_without_outbox"]
    assert complete(link, [claimed.lease])
    assert check_invariants(database) == []


def test_what_is_sound_by_now_or_locked_is_left_alone(database: Database, link: Link) -> None:
    """The statements that mend look again under the locks: a sound row stays as it is, a locked one, too."""
    ready, ended = submit(database, 2)
    release_all(link)
    complete(link, [item.lease for item in take(link, [ended])])
    rows = database.rows("SELECT to_jsonb(o) FROM {s}.outbox AS o")
    given = {"code": "x", "actor": "a", "reason": "r", "job_ids": [ready, ended, uuid4()]}
    for name in {str(check.mend) for check in CHECKS if check.mend}:
        assert link.run(name, **given) == []
    assert database.rows("SELECT to_jsonb(o) FROM {s}.outbox AS o") == rows
    database.rows("UPDATE {s}.outbox SET queue = 'elsewhere'")
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ready])
        assert link.run("mend_outbox_row", **given) == []
    assert [row.job_id for row in link.run("mend_outbox_row", **given)] == [ready]


def test_who_and_why_are_checked_first(database: Database) -> None:
    """Without a usable name nothing is looked at or mended."""
    engine = database.engine(poolclass=sa.NullPool)
    for by, reason in (("", "r"), ("a", ""), ("a\x1b", "r")):
        with pytest.raises(NameRefused):
            mend(engine, by=by, reason=reason, schema=database.schema)


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
    assert {"effects_orphaned", "effects_pending", "effects_uncertain"} == set(report.unfinished)
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
