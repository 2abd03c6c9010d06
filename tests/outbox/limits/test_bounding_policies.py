"""Bounds of queues that defer what comes, or shed what is less urgent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import (
    QueueFull,
    enqueue,
    enqueue_many,
)
from support.bounds import LARGE, bound, counted
from support.database import Database
from support.jobs import Note, OtherNote, notes

pytestmark = pytest.mark.usefixtures("sound")


@pytest.mark.parametrize("count", [1, 3, LARGE])
def test_a_call_is_deferred_in_whole(database: Database, session: Session, count: int) -> None:
    """All of it gets one later time: when the backlog will have drained; what is written is a usual job."""
    database.clock.stop()
    bound(database, policy="defer")
    counted(database)
    refs = enqueue_many(session, [*notes(count), OtherNote(key="a")], deadline=database.clock.now() + timedelta(1))
    session.commit()
    assert all(ref.created for ref in refs)
    at = database.clock.now() + timedelta(seconds=40)
    assert database.rows("SELECT DISTINCT run_at FROM {s}.jobs") == [(at,)]
    assert database.rows("SELECT DISTINCT due_at, order_key, phase FROM {s}.outbox") == [(at, at, "owed")]


@pytest.mark.parametrize("style", ["ISO, DMY", "German", "SQL, DMY", "Postgres, MDY"])
def test_a_deferred_time_is_read_alike_in_every_session(database: Database, session: Session, style: str) -> None:
    """Whatever date style and time zone the caller's session has."""
    database.clock.set(datetime(2026, 3, 4, 5, 6, 7, 890123, UTC))
    bound(database, policy="defer")
    counted(database)
    session.execute(sa.text(f"SET DateStyle = '{style}'"))
    session.execute(sa.text("SET TimeZone = 'Asia/Kolkata'"))
    enqueue(session, Note(key="a"))
    session.commit()
    assert database.value("SELECT run_at FROM {s}.jobs") == database.clock.now() + timedelta(seconds=40)


@pytest.mark.parametrize(("drain_s", "expected_s"), [(None, 60), (7200.0, 60), (0.0, 1), (30.0, 30)])
def test_no_job_is_deferred_for_longer_than_allowed(
    database: Database, session: Session, drain_s: float | None, expected_s: float
) -> None:
    """Nor for less than a second; and for the longest where nobody knows when the queue will have drained."""
    database.clock.stop()
    bound(database, policy="defer", longest=timedelta(seconds=60))
    counted(database, drain_s=drain_s)
    enqueue(session, Note(key="a"))
    session.commit()
    assert database.value("SELECT run_at FROM {s}.jobs") == database.clock.now() + timedelta(seconds=expected_s)


def test_what_could_not_run_before_its_deadline_is_refused(database: Database, session: Session) -> None:
    """A deferral past the deadline would be a job that never runs."""
    bound(database, policy="defer")
    counted(database)
    with pytest.raises(QueueFull, match="deadline"):
        enqueue(session, Note(key="a"), deadline=database.clock.now() + timedelta(seconds=30))
    assert enqueue(session, Note(key="a"), deadline=database.clock.now() + timedelta(seconds=300)).created


def test_shedding_lets_higher_priorities_pass(database: Database, session: Session) -> None:
    """Those below the given one are refused, and told why."""
    bound(database, policy="shed", keeps=5)
    counted(database)
    with pytest.raises(QueueFull, match="priority"):
        enqueue(session, Note(key="a"), priority=4)
    assert enqueue(session, Note(key="b"), priority=5).created
