"""Why a job doesn't run that waits for a set of others."""

from __future__ import annotations

from datetime import datetime

import pytest
import sqlalchemy as sa

from outbox import explain, fan_in
from outbox.database.link import Link
from outbox.joins.keeping import JoinWatch
from outbox.leases.ending import complete, fail
from outbox.reading.jobs import job_tree
from outbox_schemas import JobState, Reason
from support.asking import codes, staff, why
from support.database import Database
from support.jobs import BROKEN, Note, running

pytestmark = pytest.mark.usefixtures("sound")


def test_jobs_awaited(database: Database, link: Link, still: datetime, engine: sa.Engine) -> None:
    """A job that waits for others counts those still to end, and names first whom only a person can help."""
    staff(link)
    items = running(database, link, 3)
    with engine.begin() as connection:
        waiting = fan_in(connection, [item.lease.job_id for item in items], Note(key="then"))
    complete(link, [items[0].lease])
    fail(link, [(items[1].lease, BROKEN)])
    JoinWatch().close(link)
    database.clock.advance(100)
    found = why(database, waiting.id)
    assert (codes(found), found.since) == ([Reason.SET_UNMET, Reason.JOBS_AWAITED], still)
    assert f"{items[1].lease.job_id}: failed" in found.text
    assert "1 still to end" in found.also[0].text
    assert found.awaited is not None
    assert [(job.job_id, job.state) for job in found.awaited.shown] == [
        (items[1].lease.job_id, JobState.FAILED),
        (items[2].lease.job_id, JobState.RUNNING),
    ]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_large_set_is_told_in_bounds(database: Database, link: Link, driver: str) -> None:
    """However many have failed, a few are named and twenty listed; the numbers are of all."""
    items = running(database, link, 30)
    with database.engine().begin() as connection:
        waiting = fan_in(connection, [item.lease.job_id for item in items], Note(key="then"))
    fail(link, [(item.lease, BROKEN) for item in items[:25]])
    with database.keep(sa.create_engine(database.driver_url(driver))).connect() as connection:
        found = explain(connection, waiting.id, schema=database.schema)
    assert found.awaited is not None
    assert (found.awaited.left, found.awaited.stopped, len(found.awaited.shown)) == (30, 25, 20)
    assert all(job.stopped for job in found.awaited.shown)
    assert found.text.count(": failed") == 3
    assert "and 22 more" in found.text


def test_members_count_by_their_states(database: Database, link: Link, engine: sa.Engine) -> None:
    """Who has ended as asked is not still to end, however long the next look through the sets takes to come; a set is
    unmet since its first member stopped.
    """
    staff(link)
    items = running(database, link, 3)
    with engine.begin() as connection:
        waiting = fan_in(connection, [item.lease.job_id for item in items], Note(key="then"))
    complete(link, [items[0].lease])
    found = why(database, waiting.id)
    assert found.text == "the jobs of its set: 2 still to end"
    assert found.awaited is not None
    assert {job.job_id for job in found.awaited.shown} == {item.lease.job_id for item in items[1:]}
    [node] = job_tree(link, waiting.id)
    assert node.waits_left == 2
    database.clock.advance(5)
    fail(link, [(items[1].lease, BROKEN)])
    database.clock.advance(5)
    complete(link, [items[2].lease])
    found = why(database, waiting.id)
    [(ended,)] = database.rows("SELECT finished_at FROM {s}.jobs WHERE id = %s", items[1].lease.job_id)
    assert (codes(found), found.since) == ([Reason.SET_UNMET], ended)


def test_a_set_that_is_complete(database: Database, link: Link, engine: sa.Engine) -> None:
    """Between the last member's end and the look that sees it, the relay is who acts next."""
    staff(link)
    [item] = running(database, link)
    with engine.begin() as connection:
        waiting = fan_in(connection, [item.lease.job_id], Note(key="then"))
    complete(link, [item.lease])
    found = why(database, waiting.id)
    assert (codes(found), found.text) == (
        [Reason.JOBS_AWAITED],
        "the relay: the jobs of its set have all ended, and it is let go next",
    )
