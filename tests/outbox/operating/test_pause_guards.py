"""What a keeper of pauses finds under its lock counts, and a row that has lost its job stops nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import sqlalchemy as sa

from outbox import pause, resume
from outbox.database.link import Link
from outbox.keeping import pauses as pause_keeping
from outbox.keeping.pauses import ASIDE, PauseKeeper
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


def test_a_walk_goes_past_what_another_pause_still_holds(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piece by piece, each from where the last one ended, so that what is free behind it comes back, too."""
    monkeypatch.setattr(pause_keeping, "_BATCH", 3)
    submit(database, 5)
    submit(database, 5, tenant="other")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        for tenant in ("default", "other"):
            pause(connection, "tenant", tenant, **WHO)
    keeper = PauseKeeper()
    until(lambda: keeper.keep(link).set_aside == 0 and database.count("outbox WHERE last_error = 'paused'") == 10)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "other", **WHO)
    assert sum(keeper.keep(link).put_back for _ in range(3)) == 5
    assert database.count("pauses") == 1


def test_the_time_of_a_pause_is_no_lateness(paused: Database, link: Link) -> None:
    """What comes back in line is due from then on: nobody was late with it before."""
    submit(paused, 1)
    keeper = PauseKeeper()
    assert keeper.keep(link).set_aside == 1
    with paused.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", **WHO)
    paused.clock.advance(3600)
    assert keeper.keep(link).put_back == 1
    assert paused.value("SELECT extract(epoch FROM {s}.clock() - due_at) < 60 FROM {s}.outbox")
