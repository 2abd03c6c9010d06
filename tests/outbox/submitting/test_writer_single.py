"""The single job's own statement: it writes what the batch's does, and leaves to that what is not usual."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import enqueue, enqueue_many
from outbox.submitting.submission import USUAL, job_text, jobs_text, submission_of, submissions_of
from support.database import Database
from support.jobs import Note, notes

pytestmark = pytest.mark.usefixtures("sound")

EVERYTHING: dict[str, Any] = {
    "tenant": "t:1",
    "priority": -7,
    "run_at": datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
    "deadline": datetime(2030, 1, 2, tzinfo=UTC),
    "max_attempts": 3,
    "correlation_id": "request 7",
    "parent_id": UUID(int=7),
}
ROW = (
    "SELECT to_jsonb(j) - '{id,logical_key,created_at}'::text[], to_jsonb(o) - 'job_id' FROM {s}.jobs AS j"
    " JOIN {s}.outbox AS o ON o.job_id = j.id WHERE j.id = %s"
)
CALLS = sa.text("SELECT pg_stat_get_xact_function_calls('outbox.enqueue_2(text)'::regprocedure)")


@pytest.mark.parametrize("left_out", [None, *EVERYTHING])
def test_one_job_is_written_as_in_a_batch(database: Database, engine: sa.Engine, left_out: str | None) -> None:
    """Whatever is said of a job and whatever is not, both statements make the same rows, but for key and instants."""
    options = {name: value for name, value in EVERYTHING.items() if name != left_out}
    body = {"text": "é \\u001e", "empty": "", "list": [1, 2.5, None]}
    with engine.begin() as connection:
        connection.execute(sa.text("SELECT 1"))
        one = enqueue(connection, Note(key="one", body=body), **options)
        batch = enqueue_many(connection, [Note(key="two", body=body), Note(key="three", body=body)], **options)
    database.rows("UPDATE {s}.jobs SET payload = payload - 'key', payload_digest = ''")
    if left_out == "run_at":
        database.rows("UPDATE {s}.jobs SET run_at = 'epoch'")
        database.rows("UPDATE {s}.outbox SET due_at = 'epoch', order_key = order_key - due_at + 'epoch'::timestamptz")
    rows = [database.rows(ROW, ref.id) for ref in (one, *batch)]
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 1


@pytest.mark.parametrize(("level", "calls"), [("READ COMMITTED", None), ("REPEATABLE READ", 1), ("SERIALIZABLE", 1)])
def test_a_free_key_needs_plain_inserts_alone(database: Database, level: str, calls: int | None) -> None:
    """The batch's statement has a part only where PostgreSQL might refuse the insert for an old snapshot."""
    with database.engine(isolation_level=level).begin() as connection:
        connection.execute(sa.text("SET LOCAL track_functions = 'all'"))
        assert enqueue(connection, Note(key="free")).created
        assert connection.scalar(CALLS) == calls


def test_a_taken_key_is_looked_into_by_the_batchs_statement(engine: sa.Engine) -> None:
    """It knows whose the key is, and writes the job if the key has become free meanwhile."""
    with engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL track_functions = 'all'"))
        assert enqueue(connection, Note(key="k")).created
        assert not enqueue(connection, Note(key="k")).created
        assert connection.scalar(CALLS) == 1


@pytest.mark.parametrize("count", [2, 15])
def test_more_than_one_job_is_never_taken_for_one(database: Database, engine: sa.Engine, count: int) -> None:
    """The function counts what it is given; several jobs are written by the batch's."""
    jobs = jobs_text(submissions_of(notes(count), USUAL), USUAL)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("SELECT outbox.enqueue_one_2(:jobs)"), {"jobs": jobs}) is None
    assert database.count("jobs") == database.count("outbox") == count


def test_both_texts_of_one_job_are_the_same() -> None:
    """The single job's text, made without lists, is the batch's of one."""
    submission = submission_of(Note(key="k", body=["é", 1]), USUAL)
    assert job_text(submission, USUAL) == jobs_text([submission], USUAL)
