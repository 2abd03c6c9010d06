"""Looks that begin where the line begins: they find what full looks find, soon, and step over no dead history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox.database.floors import BEGINNING, Cadence
from outbox.database.link import Link
from outbox.keeping.time import LeaseWatch, recover_leases
from outbox.leases.ending import complete
from outbox.leases.leasing import heartbeat
from outbox.releasing.relaying import Looker, release
from support.database import Database
from support.jobs import ABILITIES, Note, OtherNote, notes, release_all, running, submit, take

HISTORY = 3000

pytestmark = pytest.mark.usefixtures("sound")


class Choice(Cadence):
    """Makes the looks that a test asks for."""

    full = True
    hurry_in_s = 1.0

    def due_in(self, *, hurry: bool = False) -> float:
        """Return the seconds until a full look is due."""
        return 0.0 if self.full else self.hurry_in_s if hurry else 1000.0


@pytest.fixture
def cadence() -> Choice:
    """Return a cadence that the test decides."""
    return Choice()


@pytest.fixture
def looker(link: Link, cadence: Choice) -> Looker:
    """Return a looker that has made one full look, with a job due, and makes others from the floor."""
    looker = Looker(link, runway=100, cadence=cadence)
    looker.look()
    return looker


def named(looker: Looker) -> dict[str, int]:
    """Return the due queues and their counts."""
    return {queue.name: queue.released for queue in looker.look().due}


def test_looks_from_the_floor_find_what_is_new(database: Database, link: Link, looker: Looker, cadence: Choice) -> None:
    """In a known queue a new job is found at once, with the count of hints that are out."""
    submit(database)
    assert named(looker) == {"notes": 0}
    cadence.full = False
    for number in range(1, 4):
        assert len(release(link, "notes", batch=1, rehint_after_s=10, since=looker.floors.of("notes").owed)) == 1
        assert named(looker) == {}
        submit(database)
        assert named(looker) == {"notes": number}


def test_a_late_commit_below_the_floor_is_found(
    database: Database, link: Link, looker: Looker, cadence: Choice, engine: sa.Engine
) -> None:
    """A transaction that stays open for long leaves its job below the floor: the next full look finds it, and so
    does the release that follows.
    """
    database.clock.advance(0)
    with engine.begin() as late:
        enqueue(late, Note(key="late"))
        database.clock.advance(100)
        submit(database)
        assert named(looker) == {"notes": 0}
        release_all(link)
        cadence.full = False
        assert named(looker) == {}
    assert named(looker) == {}
    cadence.full = True
    assert named(looker) == {"notes": 1}
    assert len(release(link, "notes", batch=9, rehint_after_s=10, since=looker.floors.of("notes").owed)) == 1


def test_a_short_delay_before_the_commit_is_never_missed(
    database: Database, looker: Looker, cadence: Choice, engine: sa.Engine
) -> None:
    """What commits within the slack after a look is found by the next look, whichever kind that is."""
    database.clock.stop()
    submit(database, payloads=[Note(key="known")], run_at=database.clock.now().replace(year=2100))
    looker.look()
    cadence.full = False
    with engine.begin() as late:
        enqueue(late, Note(key="late"))
        database.clock.advance(0.9)
        assert named(looker) == {}
    assert named(looker) == {"notes": 0}


@pytest.mark.parametrize("options", [{"priority": 10}, {"payloads": [OtherNote(key="x")]}], ids=["priority", "queue"])
def test_what_lies_below_the_floor_or_is_unknown_waits_for_a_full_look(
    database: Database, link: Link, looker: Looker, cadence: Choice, options: dict[str, Any]
) -> None:
    """A higher priority, or a queue of its own, hides a job for no longer than until the next full look."""
    submit(database)
    looker.look()
    release_all(link)
    cadence.full = False
    looker.look()
    submit(database, **options)
    assert named(looker) == {}
    cadence.full = True
    assert len(named(looker)) == 1


def test_news_is_a_reason_for_a_full_look_where_nothing_else_is_found(
    database: Database, link: Link, looker: Looker, cadence: Choice
) -> None:
    """Whoever was woken finds a job of high priority, or of a new queue, as soon as the cost of full looks allows."""
    submit(database)
    looker.look()
    release_all(link)
    cadence.full = False
    submit(database, priority=10)
    look = looker.look(news=True)
    assert (look.due, look.next_s) == ([], 1.0)
    cadence.hurry_in_s = 0.0
    assert [queue.name for queue in looker.look().due] == ["notes"]
    release_all(link)
    assert looker.look().next_s == 1000.0


def test_a_look_tells_when_the_next_hint_comes_due(database: Database, looker: Looker, cadence: Choice) -> None:
    """Whoever sleeps until then is in time for a job that is due later."""
    database.clock.stop()
    assert looker.look().next_s is None
    for seconds in (50, 20, 90):
        submit(database, run_at=database.clock.now() + timedelta(seconds=seconds))
        assert (looker.look().next_s or 0) <= 50
    assert looker.look().next_s == pytest.approx(20)
    cadence.full = False
    assert looker.look().next_s == pytest.approx(20)


def test_a_look_that_takes_too_long_is_followed_by_one_from_the_floor(
    database: Database, link: Link, looker: Looker, cadence: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server ends a full look, what was remembered still counts, and new hints go out."""
    submit(database)
    looker.look()
    remembered = dict(looker.floors.all())

    def too_long(*_args: object, **_more: object) -> None:
        raise psycopg.errors.QueryCanceled

    with monkeypatch.context() as patch:
        patch.setattr(link, "run", too_long)
        with pytest.raises(psycopg.errors.QueryCanceled):
            looker.look()
    assert looker.floors.all() == remembered


def test_an_error_makes_the_next_look_begin_at_the_beginning(
    database: Database, link: Link, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost connection nothing that was remembered counts."""
    submit(database)
    looker.look()
    with monkeypatch.context() as patch:
        patch.setattr(link, "run", lambda *_args, **_more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            looker.look()
    assert looker.floors.all() == {}
    assert named(looker) == {"notes": 0}


@contextmanager
def old_snapshot(database: Database) -> Iterator[None]:
    """Hold a snapshot in another session, as a long report or a forgotten transaction does."""
    with database.connect(autocommit=False) as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        yield
        session.rollback()


def pages(database: Database, statement: str, **parameters: Any) -> int:
    """Return how many pages a statement touches, and roll it back."""
    with database.connect(autocommit=False) as session:
        text = database.statements.for_psycopg(statement)
        plan = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", parameters).fetchone()
        session.rollback()
    assert plan is not None
    top = json.loads(json.dumps(plan[0]))[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def live(link: Link, database: Database) -> None:
    """Let many jobs live and end."""
    ids = submit(database, payloads=notes(HISTORY))
    release_all(link)
    complete(link, [item.lease for item in take(link, ids)])


def test_no_look_steps_over_dead_history(database: Database, link: Link) -> None:
    """While an old snapshot keeps the rows of ended jobs, looks, releases and lease checks read a few pages only."""
    watch, looker = LeaseWatch(link), Looker(link, runway=100, cadence=Choice())
    with old_snapshot(database):
        live(link, database)
        database.clock.advance(120)
        submit(database)
        looker.look()
        watch.expired()
        floor = looker.floors.of("notes")
        places = {"queues": ["notes"], "released_since": [floor.released]}
        full = pages(database, "due_queues", runway=100, queues=[], released_since=[])
        again = pages(database, "due_again", runway=100, owed_since=[floor.owed[0]], owed_id=[floor.owed[1]], **places)
        assert full > 100
        assert again < 50
        moved: dict[str, Any] = {
            "queue": "notes",
            "batch": 10,
            "overdue_s": 0,
            "kinds": None,
            "versions": None,
            "governed": False,
        }
        moved |= {"rehint_after_s": 10, "rehint_max_s": 300}
        assert pages(database, "release", since=BEGINNING[0], since_id=BEGINNING[1], **moved) > 50
        assert pages(database, "release", since=floor.owed[0], since_id=floor.owed[1], **moved) < 50
        (instant,) = database.rows("SELECT {s}.clock()")[0]
        assert pages(database, "due_leases", queues=["notes"], since=instant, batch=100) < 30


def test_leases_in_a_queue_that_had_none_are_found_by_the_next_wide_look(database: Database, link: Link) -> None:
    """Other looks go by the queues that are known, and step over nothing that has ended elsewhere."""
    database.clock.stop()
    watch, wide = LeaseWatch(link), Choice()
    watch._cadence, watch._wide, wide.full = Choice(), wide, False  # the kind of look is what the test is about
    (known,) = running(database, link)
    assert watch.expired() == []
    watch._cadence.full = False
    others = submit(database, payloads=[OtherNote(key="x")])
    release_all(link, "others")
    (new,) = take(link, others, [replace(ABILITIES[0], kind=OtherNote.kind)])
    database.clock.advance(61)
    assert watch.expired() == [known.lease.job_id]
    wide.full = True
    assert set(watch.expired()) == {known.lease.job_id, new.lease.job_id}
    wide.full = False
    assert set(watch.expired()) == {known.lease.job_id, new.lease.job_id}


def test_queues_whose_leases_are_taken_now_are_found_past_all_that_ended(database: Database, link: Link) -> None:
    """While an old snapshot keeps what has ended, a look for new queues begins at the leases that were taken last."""
    with old_snapshot(database):
        live(link, database)
        database.clock.advance(1)
        running(database, link)
        (instant,) = database.rows("SELECT {s}.clock()")[0]
        assert pages(database, "due_leases", queues=None, since=instant, batch=100) < 30


def test_a_look_begins_in_the_middle_of_jobs_that_were_submitted_together(database: Database, link: Link) -> None:
    """Jobs of one call have one place in time: their dead neighbours are stepped over all the same."""
    looker = Looker(link, runway=100, cadence=Choice())
    with old_snapshot(database):
        ids = submit(database, HISTORY)
        hints = release_all(link, batch=HISTORY - 10)
        assert [hint.job_id for hint in hints] == ids[:-10]
        complete(link, [item.lease for item in take(link, [hint.job_id for hint in hints])])
        database.clock.advance(5)
        looker.look()
        owed = looker.floors.of("notes").owed
        assert owed[1] == ids[-10]
        where = {
            "owed_since": [owed[0]],
            "owed_id": [owed[1]],
            "released_since": [database.value("SELECT {s}.clock()")],
        }
        assert pages(database, "due_again", runway=100, queues=["notes"], **where) < 50
        assert [hint.job_id for hint in release(link, "notes", batch=99, rehint_after_s=9, since=owed)] == ids[-10:]


def test_an_extended_lease_is_put_off_to_its_new_end(database: Database, link: Link) -> None:
    """A long job is looked at once for each lease that it would have outlived, and is found when it ends at last."""
    kept, other = running(database, link, 2)
    watch = LeaseWatch(link)
    database.clock.advance(50)
    heartbeat(link, [kept.lease])
    database.clock.advance(11)
    assert watch.expired() == [other.lease.job_id]
    due = "SELECT due_at = lease_expires_at FROM {s}.outbox WHERE job_id = %s"
    assert database.value(due, kept.lease.job_id)
    assert [item.job_id for item in recover_leases(link, watch.expired())] == [other.lease.job_id]
    database.clock.advance(48)
    assert watch.expired() == []
    database.clock.advance(2)
    assert watch.expired() == [kept.lease.job_id]


def test_a_lease_that_somebody_holds_is_looked_at_again(database: Database, link: Link, engine: sa.Engine) -> None:
    """What could not be taken back or put off in one look is there in the next, from the floor as well."""
    held, alive = running(database, link, 2)
    watch = LeaseWatch(link)
    watch._cadence = cadence = Choice()  # the kind of look is what the test is about
    watch.expired()
    cadence.full = False
    database.clock.advance(50)
    heartbeat(link, [alive.lease])
    database.clock.advance(11)
    with engine.begin() as holder:
        holder.execute(sa.text(f'SELECT 1 FROM "{database.schema}".outbox FOR UPDATE'))
        assert watch.expired() == [held.lease.job_id]
        assert recover_leases(link, [held.lease.job_id]) == []
        database.clock.advance(10)
        assert watch.expired() == [held.lease.job_id]
    assert watch.expired() == [held.lease.job_id]
    assert [item.job_id for item in recover_leases(link, [held.lease.job_id])] == [held.lease.job_id]
    assert watch.expired() == []
    database.clock.advance(60)
    assert watch.expired() == [alive.lease.job_id]


def test_a_short_lease_of_a_claim_that_commits_late_is_found(database: Database, link: Link) -> None:
    """Such a lease may have ended before it can be seen: now and then a look goes back as far as a claim may wait."""
    database.clock.stop()
    (late,) = running(database, link)
    watch, wide = LeaseWatch(link), Choice()
    watch._cadence, watch._wide, wide.full = Choice(), wide, False  # the kind of look is what the test is about
    watch._cadence.full = False
    database.clock.advance(69)
    watch._since = database.clock.now() - timedelta(seconds=1)
    assert watch.expired() == []
    wide.full = True
    assert watch.expired() == [late.lease.job_id]


def test_a_lease_that_came_due_just_before_a_look_is_found_by_the_next(database: Database, link: Link) -> None:
    """Its claim may have committed just after that look."""
    database.clock.stop()
    (late,) = running(database, link)
    watch, narrow = LeaseWatch(link), Choice()
    narrow.full = False
    watch.expired()
    watch._cadence = watch._wide = narrow  # the kind of look is what the test is about
    earlier = "due_at - interval '60.9 s'"
    database.rows(f"UPDATE {{s}}.outbox SET due_at = {earlier}, lease_expires_at = {earlier} RETURNING 1")
    assert watch.expired() == [late.lease.job_id]


def test_many_extended_leases_hide_no_expired_one(database: Database, link: Link) -> None:
    """However many living leases come due for a look together, the expired ones behind them are found in one go."""
    jobs = running(database, link, 50)
    database.clock.advance(50)
    heartbeat(link, [job.lease for job in jobs[:47]])
    database.clock.advance(11)
    assert set(LeaseWatch(link).expired(batch=5)) == {job.lease.job_id for job in jobs[47:]}
