"""A purge beside redrives: what waits in one stays, and what a patch kept goes with it."""

from __future__ import annotations

from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import redrive
from outbox.database.link import Link
from outbox.redrives.operations import steer_redrive
from outbox.retention.erasing import preview, purge
from support.database import Database
from support.retained import made, rules

DAY = 86_400
pytestmark = pytest.mark.usefixtures("sound")


def begun_redrive(database: Database, job_id: UUID) -> UUID:
    """Begin a redrive of a job, in which it waits for a relay, with what a patch keeps; return the redrive's id."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        operation_id = redrive(connection, job_id, by="test", reason="test", rate=1).operation_id
    database.rows("UPDATE {s}.redrive_items SET new_payload = '1', old_payload = '\"canary\"'")
    return operation_id


TIMES = pytest.mark.parametrize("times", [{"failed": "30d"}, {"failed_payload": "30d"}])


@TIMES
def test_a_job_that_waits_in_a_redrive_stays_and_what_a_patch_kept_goes(
    database: Database, link: Link, times: dict[str, str]
) -> None:
    """A person has decided that it runs again; afterwards its old payload leaves the redrive's record, too."""
    jobs = made(database, link)
    begun_redrive(database, jobs["failed"])
    database.clock.advance(31 * DAY)
    told = rules(**times)
    for look in (preview, purge):
        stretch = look(link, told, batch=100)
        assert stretch.purged + stretch.erased == 0
    database.rows("UPDATE {s}.redrive_items SET state = 'failed'")
    stretch = purge(link, told, batch=100)
    assert stretch.purged + stretch.erased == 1
    left_over = database.rows("SELECT new_payload, old_payload FROM {s}.redrive_items")
    assert left_over == ([] if stretch.purged else [(None, None)])


@TIMES
@pytest.mark.parametrize("state", ["stopped", "aborted"])
def test_what_a_redrive_that_is_over_has_not_put_back_is_kept_no_longer(
    database: Database, link: Link, times: dict[str, str], state: str
) -> None:
    """A paused one may still put it back; from the redrive's end on its job is as any other, payload and all."""
    jobs = made(database, link)
    operation_id = begun_redrive(database, jobs["failed"])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        steer_redrive(connection, operation_id, "pause", by="test", reason="test")
    database.clock.advance(31 * DAY)
    told = rules(**times)
    for look in (preview, purge):
        stretch = look(link, told, batch=100)
        assert stretch.purged + stretch.erased == 0
    database.rows("UPDATE {s}.redrive_operations SET state = %s, ended_at = {s}.clock()", state)
    seen = preview(link, told, batch=100)
    assert seen.purged + seen.erased == 1
    assert purge(link, told, batch=100) == seen
    items = database.rows("SELECT state, new_payload, old_payload FROM {s}.redrive_items")
    assert items == ([] if seen.purged else [("waiting", None, None)])


@pytest.mark.parametrize("over", [False, True])
def test_a_purge_leaves_the_items_that_a_redrive_still_counts(database: Database, link: Link, over: bool) -> None:
    """One under way will find the job gone; one that is over counts nothing any more, so the job's item goes along."""
    jobs = made(database, link)
    begun_redrive(database, jobs["failed"])
    database.rows("UPDATE {s}.redrive_items SET state = 'redriven'")
    if over:
        database.rows("UPDATE {s}.redrive_operations SET state = 'stopped', ended_at = {s}.clock()")
    database.clock.advance(31 * DAY)
    assert purge(link, rules(failed="30d"), batch=100).failed == 1
    assert database.count("redrive_items") == (0 if over else 1)
    assert database.count("redrive_items WHERE coalesce(new_payload, old_payload) IS NOT NULL") == 0
