"""What a purge looks at again once it holds its locks, and what it passes over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from outbox import redrive
from outbox.database.link import Link
from outbox.leases.ending import complete, fail
from outbox.retention.erasing import Rule, preview, purge, rules_of
from outbox.settings.retention import RetentionSettings
from support.database import Database
from support.jobs import BROKEN, running
from support.waiting import until

DAY = 86_400
_HELD_CLOCK = """
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(4711);
  RETURN clock_timestamp() + interval '31 days';
END $$
"""
_WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"


def rules(**times: str) -> list[Rule]:
    """Return the rules that settings make."""
    return rules_of(RetentionSettings.model_validate(times))


@pytest.mark.parametrize("since", ["it waits", "it has ended again"])
@pytest.mark.parametrize("times", [{"failed": "30d"}, {"failed_payload": "30d"}], ids=["row", "payload"])
def test_a_job_that_was_put_back_meanwhile_stays(
    database: Database, link: Link, times: dict[str, str], since: str
) -> None:
    """The purge has seen it as failed long ago, and comes to its lock after a redrive has committed."""
    [item] = running(database, link)
    fail(link, [(item.lease, BROKEN)])
    database.rows(_HELD_CLOCK)
    with database.connect() as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("SELECT pg_advisory_lock(4711)")
        purged = pool.submit(purge, link, rules(**times), batch=100)
        until(lambda: database.count(_WAITS))
        database.rows("SET session_replication_role = replica")
        if since == "it waits":
            database.rows("UPDATE {s}.jobs SET state = 'ready', finished_at = NULL")
        else:
            database.rows("UPDATE {s}.jobs SET finished_at = clock_timestamp() + interval '31 days'")
        holder.execute("SELECT pg_advisory_unlock(4711)")
        found = purged.result(30)
    assert found.purged + found.erased == 0
    assert database.rows("SELECT payload_erased_at, payload ->> 'key' IS NOT NULL FROM {s}.jobs") == [(None, True)]
    assert database.count("attempts") == 1


def test_a_payload_that_somebody_holds_is_passed_over(database: Database, link: Link) -> None:
    """Without a wait; and what was erased once is not counted as still to be erased."""
    items = running(database, link, 2)
    complete(link, [item.lease for item in items])
    database.clock.advance(8 * DAY)
    week = rules(succeeded_payload="7d")
    with database.connect(autocommit=False) as other:
        held = database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True)
        other.execute(held, [items[0].lease.job_id])
        assert preview(link, week, batch=100).erased == 2
        assert purge(link, week, batch=100).erased == 1
        other.rollback()
    assert preview(link, week, batch=100).erased == 1
    assert purge(link, week, batch=100).erased == 1
    assert preview(link, week, batch=100).erased == 0


def test_what_a_patch_kept_goes_with_its_job_while_the_redrive_goes_on(database: Database, link: Link) -> None:
    """The redrive still counts the job, without the payloads that it was given and had before."""
    [item] = running(database, link)
    fail(link, [(item.lease, BROKEN)])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        redrive(connection, item.lease.job_id, by="test", reason="test", rate=1)
    database.rows("UPDATE {s}.redrive_items SET state = 'redriven', new_payload = '1', old_payload = '2'")
    database.clock.advance(31 * DAY)
    assert purge(link, rules(failed="30d"), batch=100).purged == 1
    kept = database.rows("SELECT state, new_payload, old_payload FROM {s}.redrive_items")
    assert kept == [("redriven", None, None)]
