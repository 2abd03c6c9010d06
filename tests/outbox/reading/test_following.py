"""What a follower tells of jobs from look to look."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from outbox import cancel, redrive
from outbox.leases.ending import Failure, complete, fail, retry
from outbox.reading import following
from outbox.reading.following import Follower
from outbox.reading.running import list_running
from support.database import Database
from support.jobs import OtherNote, release_all, running, submit, take

BUSY = Failure("unknown", "busy", "m", None)


def told(follower: Follower, database: Database) -> list[tuple[str, int]]:
    """Return what one look tells: what, and of which attempt."""
    return [(change.what.value, change.job.attempt_count) for change in follower.look(database.link("follow"))]


def test_a_jobs_course_is_told_once(database: Database, engine: Engine) -> None:
    """From its submission over a retry, a failure, a redrive and a second failure to its end; a look in which nothing
    has happened tells nothing.
    """
    database.clock.stop()
    link = database.link()
    follower = Follower(lambda _job: True)
    assert told(follower, database) == []
    database.clock.advance(1)
    (job,) = submit(database)
    assert told(follower, database) == [("submitted", 0)]
    for attempt in (1, 2):
        database.clock.advance(1)
        release_all(link)
        (mine,) = take(link, [job])
        assert told(follower, database) == [("started", attempt)]
        assert told(follower, database) == []
        if attempt == 1:
            retry(link, [(mine.lease, BUSY, 0)])
            assert told(follower, database) == [("waits_again", 1)]
    fail(link, [(mine.lease, BUSY)])
    assert told(follower, database) == [("failed", 2)]
    assert told(follower, database) == []
    with engine.begin() as connection:
        redrive(connection, job, by="me", reason="x")
    database.clock.advance(1)
    release_all(link)
    (mine,) = take(link, [job])
    fail(link, [(mine.lease, BUSY)])
    assert told(follower, database) == [("failed", 3)]
    with engine.begin() as connection:
        redrive(connection, job, by="me", reason="x")
    database.clock.advance(1)
    release_all(link)
    (mine,) = take(link, [job])
    assert told(follower, database) == [("started", 4)]
    complete(link, [mine.lease])
    assert told(follower, database) == [("succeeded", 4)]
    assert told(follower, database) == []


def test_what_was_there_before_is_told_by_its_time(database: Database, engine: Engine) -> None:
    """A job of long ago is followed from where it runs on; `since` tells what has happened within it."""
    database.clock.stop()
    link = database.link()
    (old, older) = running(database, link, 2)
    database.clock.advance(3600)
    follower, back = Follower(lambda _job: True), Follower(lambda _job: True, timedelta(hours=2))
    assert told(follower, database) == []
    assert sorted(told(back, database)) == [("started", 1)] * 2 + [("submitted", 1)] * 2
    complete(link, [old.lease])
    with engine.begin() as connection:
        cancel(connection, older.lease.job_id, by="me", reason="x")
    for one in (follower, back):
        assert sorted(told(one, database)) == [("cancelled", 1), ("succeeded", 1)]


def test_only_wanted_jobs_are_told(database: Database) -> None:
    """Others are looked at once."""
    follower = Follower(lambda job: job.queue == "others")
    told(follower, database)
    submit(database, payloads=[OtherNote(key="a")])
    submit(database, 3)
    assert told(follower, database) == [("submitted", 0)]
    assert len(follower._followed) == 1


def test_the_number_of_followed_jobs_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it, waiting ones are let go of, and told again once they run."""
    monkeypatch.setattr(following, "MOST", 3)
    monkeypatch.setattr(following, "_KNOWN", 50)
    follower = Follower(lambda _job: True)
    link = database.link()
    told(follower, database)
    ids = submit(database, 10)
    assert len(told(follower, database)) == 10
    assert (len(follower._followed), follower.let_go) == (3, 7)
    release_all(link)
    take(link, ids[:1])
    assert told(follower, database) == [("started", 1)]


def test_what_runs_is_listed_longest_first(database: Database) -> None:
    """Of all queues or of one, with its marker and for how long."""
    database.clock.stop()
    link = database.link()
    (first,) = running(database, link)
    database.clock.advance(10)
    running(database, link, 2)
    database.rows("UPDATE {s}.outbox SET progress = 'page 3' WHERE job_id = %s", first.lease.job_id)
    found = list_running(link)
    assert [round(job.for_s or 0) for job in found] == [10, 0, 0]
    assert (found[0].id, found[0].progress, found[0].attempt, found[0].queue) == (
        first.lease.job_id,
        "page 3",
        1,
        "notes",
    )
    assert found[0].lease_s == pytest.approx(50)
    assert len(list_running(link, queue="notes", limit=2)) == 2
    assert list_running(link, queue="others") == []
