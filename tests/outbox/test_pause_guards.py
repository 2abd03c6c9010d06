"""What a keeper of pauses finds under its lock counts, and a row that has lost its job stops nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import sqlalchemy as sa

from outbox import pause, resume
from outbox.link import Link
from outbox.pause_keeping import ASIDE, PauseKeeper
from support.database import Database
from support.jobs import submit
from support.waiting import until

WHO = {"by": "ada", "reason": "the bank is closed"}

_GATED_CLOCK = """
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF current_setting('application_name') LIKE '%%gated%%' THEN
    PERFORM pg_advisory_lock_shared(4712), pg_advisory_unlock_shared(4712);
  END IF;
  RETURN pg_catalog.clock_timestamp();
END $$
"""
_WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name LIKE '%%gated%%'
"""


@pytest.fixture
def paused(database: Database) -> Database:
    """Return a database whose only tenant is paused."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "tenant", "default", **WHO)
    return database


def test_what_was_released_meanwhile_is_not_set_aside(database: Database) -> None:
    """A keeper may read a row before it gets its lock: a hint that has just gone out stays as it is."""
    submit(database, 1)
    database.rows(_GATED_CLOCK)
    late = database.link("test/gated")
    with ThreadPoolExecutor(1) as pool, database.connect() as gate:
        gate.execute("SELECT pg_advisory_lock(4712)")
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            pause(connection, "tenant", "default", **WHO)
        setting = pool.submit(late.run, "set_aside", queue="notes", window=10, aside_at=ASIDE)
        until(lambda: bool(database.rows(_WAITING)))
        # As a release does that began before the pause, or of a relay that knows of none.
        due = "release_count = 1, due_at = {s}.clock() + interval '10 s'"
        database.rows("UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), " + due + " RETURNING 1")
        gate.execute("SELECT pg_advisory_unlock(4712)")
        assert setting.result(30) == []
    late.close()
    assert database.rows("SELECT phase, last_error FROM {s}.outbox") == [("released", None)]


def test_a_row_without_its_job_holds_up_no_resume(paused: Database, link: Link) -> None:
    """Whatever has deleted the job: its row goes back in line now, and the doctor's business is to find it."""
    submit(paused, 1)
    columns = "job_id, phase, queue, tenant, order_key, due_at, last_error"
    paused.rows(
        f"INSERT INTO {{s}}.outbox ({columns}) VALUES (%s, 'owed', 'notes', 'default', %s, %s, 'paused') RETURNING 1",
        uuid4(), ASIDE, ASIDE,
    )  # fmt: skip
    with paused.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", **WHO)
    assert PauseKeeper().keep(link).put_back == 1
    assert paused.value("SELECT bool_and(due_at <= {s}.clock() AND last_error IS NULL) FROM {s}.outbox")
    assert paused.count("pauses") == 0
