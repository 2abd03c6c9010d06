"""Sound traffic, and one job for each kind of corruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import sqlalchemy as sa

from outbox import cancel, redrive
from outbox.database.link import Link
from outbox.doctor import Report
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, fail, hand_back, retry
from outbox.leases.identity import worker_identity
from outbox.leases.presence import Presence, Role
from outbox.submitting.submission import HELD
from support.database import Database
from support.jobs import ABILITIES, BROKEN, release_all, running, submit


def codes(report: Report) -> set[str]:
    """Return the kinds that were found."""
    return {disorder.check.code for disorder in report.disorders}


def subjects(report: Report) -> dict[str, set[str]]:
    """Return what each kind was found about."""
    return {disorder.check.code: {case.subject for case in disorder.cases} for disorder in report.disorders}


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


@contextmanager
def before_instants(database: Database) -> Iterator[None]:
    """Let the outbox take any instant in the block, as it did before 0071; what was written stays."""
    query = (
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s AND conrelid = '{s}.outbox'::regclass"
    )
    check = database.value(query, "outbox_instants")
    database.rows("ALTER TABLE {s}.outbox DROP CONSTRAINT outbox_instants")
    yield
    database.rows(f"ALTER TABLE {{s}}.outbox ADD CONSTRAINT outbox_instants {check} NOT VALID")
    database.rows("UPDATE pg_constraint SET convalidated = true WHERE conname = 'outbox_instants'")


EFFECT = (
    "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) VALUES (%s, 'charge', "
    "'STATE', '', 1, now())"
)


def planted(database: Database, link: Link) -> Planter:
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
    with before_instants(database):
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
    plant("succeeded_unsettled", planter.ended(), EFFECT.replace("STATE", "uncertain"))
    plant("effects_pending", planter.ended("failed"), EFFECT.replace("STATE", "pending"))
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
    ahead = "now() + interval '3 days'"
    job = ready()
    plant(
        "clock_went_back",
        job,
        f"UPDATE {{s}}.jobs SET run_at = {ahead}, created_at = {ahead} WHERE id = %s",
        OWE + f"due_at = {ahead} WHERE job_id = %s",
    )
    job, keyed = ready(), "limit_group = 'g', limit_key = 'k', limit_max = 1"
    plant(
        "key_stuck",
        job,
        f"UPDATE {{s}}.jobs SET {keyed}, run_at = now() - interval '1000 hours' WHERE id = %s",
        OWE + f"{keyed}, last_error = 'waits for its key', due_at = now() + interval '52594000 hours', "
        "order_key = now() + interval '52594000 hours' WHERE job_id = %s",
    )
    behind, keyed = ready(), "limit_group = 'g', limit_key = 'b', limit_place = "
    database.rows(f"UPDATE {{s}}.jobs SET {keyed}2 WHERE id = %s", behind)
    database.rows(f"UPDATE {{s}}.outbox SET {keyed}2 WHERE job_id = %s", behind)
    plant("key_blocked", planter.ended("failed"), f"UPDATE {{s}}.dead_letters SET {keyed}1 WHERE job_id = %s")
    # At the end: whatever makes another job run releases all hints that are due.
    [later] = submit(database, run_at=database.value("SELECT {s}.clock() + interval '1 day'"))
    plant("due_too_early", later, OWE + "due_at = now(), order_key = now() WHERE job_id = %s")
    plant("order_key_ahead", ready(), OWE + "order_key = now() + interval '9 days' WHERE job_id = %s")
    database.rows("SET session_replication_role = origin")
    return planter
