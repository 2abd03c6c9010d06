"""What the database itself refuses, whoever asks: moves that no transition makes, and changes of history."""

from __future__ import annotations

from itertools import product

import psycopg
import pytest

from outbox.database.link import Link
from outbox.leases.ending import complete, retry
from outbox_schemas import TRANSITIONS, JobState
from support.database import Database
from support.jobs import BROKEN, running, submit

LEGAL = {(source, target) for (source, _), targets in TRANSITIONS.items() for target in targets}
ENDED = "('succeeded', 'failed', 'cancelled')"
REDRIVES = {(JobState.FAILED, JobState.READY), (JobState.CANCELLED, JobState.READY)}


def put(database: Database, state: JobState) -> None:
    """Have every job in a state, past the guards."""
    database.rows("SET session_replication_role = replica")
    database.rows(f"UPDATE {{s}}.jobs SET attempt_count = 3, budget_start = 1, {setting(state)}")
    database.rows("SET session_replication_role = origin")


def setting(state: JobState) -> str:
    """Return the assignments that bring a row into a state, as the table's own rules want it."""
    return (
        f"state = '{state}', lease_token = CASE WHEN '{state}' = 'running' THEN gen_random_uuid() END, "
        f"finished_at = CASE WHEN '{state}' IN {ENDED} THEN now() END"
    )


@pytest.mark.parametrize("source", JobState)
def test_the_database_makes_exactly_the_tables_moves(database: Database, source: JobState) -> None:
    """Every pair of states, with every change of the attempts' number and of the budget: what the table of transitions
    does not say is refused.
    """
    submit(database)
    for target, step, budget in product(JobState, (-1, 0, 1, 2), (1, 2, 3, 4)):
        put(database, source)
        change = f"UPDATE {{s}}.jobs SET {setting(target)}, attempt_count = 3 + %s, budget_start = %s"
        if is_legal(source, target, step, budget):
            database.rows(change, step, budget)
        else:
            with pytest.raises(psycopg.errors.RestrictViolation, match=f"can't go from {source} to {target}"):
                database.rows(change, step, budget)


def is_legal(source: JobState, target: JobState, step: int, budget: int) -> bool:
    """Tell what the guard should say of a job with 3 attempts whose budget began after the first."""
    claim = (source, target) == (JobState.READY, JobState.RUNNING)
    if (source is not target and (source, target) not in LEGAL) or step != claim:
        return False
    if claim or (target is JobState.SUCCEEDED and source is JobState.RUNNING):
        return True  # the guard's shortest condition, for what runs most, leaves the budget to the statements
    return budget == (3 if (source, target) in REDRIVES else 1)


def test_an_ended_attempt_stays_as_it_was_written(database: Database, link: Link) -> None:
    """No row of the history changes, not even to what it says, and none leaves before its job."""
    (claimed,) = running(database, link)
    retry(link, [(claimed.lease, BROKEN, 0)])
    for statement in ("UPDATE {s}.attempts SET outcome = outcome", "DELETE FROM {s}.attempts"):
        with pytest.raises(psycopg.errors.RestrictViolation, match="a row of attempts"):
            database.rows(statement)
    assert database.count("attempts") == 1


@pytest.mark.parametrize(
    "purge",
    [
        "DELETE FROM {s}.jobs; DELETE FROM {s}.attempts; DELETE FROM {s}.refusals",
        "WITH gone AS (DELETE FROM {s}.attempts), also AS (DELETE FROM {s}.refusals) DELETE FROM {s}.jobs",
        "WITH gone AS (DELETE FROM {s}.jobs RETURNING id), also AS (DELETE FROM {s}.refusals) "
        "DELETE FROM {s}.attempts AS a USING gone AS g WHERE a.job_id = g.id",
    ],
)
def test_history_leaves_with_its_job(database: Database, link: Link, purge: str) -> None:
    """A purge needs no key to the guards: the job first, or all in one statement, in any order."""
    claimed = running(database, link, 2)
    complete(link, [item.lease for item in claimed])
    database.rows(
        "INSERT INTO {s}.refusals (job_id, attempt, at, what, worker) VALUES (%s, 1, now(), 'complete', 'w')",
        claimed[0].lease.job_id,
    )
    with pytest.raises(psycopg.errors.RestrictViolation, match="a row of refusals"):
        database.rows("UPDATE {s}.refusals SET what = 'x'")
    database.rows(purge)
    assert [database.count(table) for table in ("jobs", "attempts", "refusals")] == [0, 0, 0]
