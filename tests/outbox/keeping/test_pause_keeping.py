"""What relays and consumers see to: races of a pause with everybody else, and a line that others' pauses don't clog."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa

from outbox import pause, resume
from outbox.database.floors import BEGINNING
from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE, PauseKeeper
from outbox.releasing.relaying import due_queues, release
from support.database import Database
from support.jobs import OtherNote, release_all, submit, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WHO = {"by": "ada", "reason": "the bank is closed"}
SCOPES = [("everything", ""), ("queue", "notes"), ("kind", "test.note"), ("tenant", "default")]


def stop(database: Database, scope: str, name: str = "") -> Any:
    """Pause and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        return pause(connection, scope, name, **WHO)


def go(database: Database, scope: str, name: str = "") -> Any:
    """Resume and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        return resume(connection, scope, name, **WHO)


def held_by_a_lock(database: Database) -> bool:
    """Tell whether a session of this database waits for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(database.rows(query))


@pytest.mark.parametrize(("scope", "name"), SCOPES)
def test_a_release_that_began_before_the_pause_is_taken_back(
    database: Database, link: Link, scope: str, name: str
) -> None:
    """It slips through the pause's own look; the next turn of a keeper makes its hints stale."""
    ids = submit(database, 2)
    early = database.link("test/early")
    with early.transaction():
        assert len(release(early, "notes", batch=10, rehint_after_s=10)) == 2
        assert stop(database, scope, name).taken_back == 0
    assert database.rows("SELECT DISTINCT phase FROM {s}.outbox") == [("released",)]
    assert PauseKeeper().keep(link).taken_back == 2
    assert take(link, ids) == []
    early.close()


def test_a_claim_that_holds_a_hint_is_waited_for_by_nobody(database: Database, link: Link) -> None:
    """The pause skips rows that a claim has locked: that attempt has begun, and goes on."""
    ids = submit(database, 2)
    release_all(link)
    claimer = database.link("test/claimer")
    with claimer.transaction():
        assert len(take(claimer, ids[:1])) == 1
        assert stop(database, "everything").taken_back == 1
    claimer.close()
    assert dict(database.rows("SELECT phase, count(*) FROM {s}.outbox GROUP BY 1")) == {"leased": 1, "owed": 1}


def test_nothing_is_stranded_by_a_resume_beside_a_keeper(database: Database, link: Link) -> None:
    """A resume waits for whoever sets jobs aside for its pause, so that what puts them back sees them all."""
    submit(database, 2)
    stop(database, "tenant", "default")
    slow = database.link("test/slow")
    with ThreadPoolExecutor(1) as pool:
        with slow.transaction():
            assert len(slow.run("set_aside", queue="notes", window=10, aside_at=ASIDE)) == 2
            resumed = pool.submit(go, database, "tenant", "default")
            until(lambda: held_by_a_lock(database))
            kept = PauseKeeper().keep(link)
            assert (kept.put_back, database.count("pauses")) == (0, 1)
        assert resumed.result(30) is not None
    slow.close()
    assert PauseKeeper().keep(link).put_back == 2
    assert (len(release_all(link)), database.count("pauses")) == (2, 0)


def test_two_pauses_at_once_are_one(database: Database) -> None:
    """The second waits for the first, and is told of it as of one that had been there before."""
    with ThreadPoolExecutor(1) as pool:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            first = pause(connection, "queue", "notes", **WHO)
            second = pool.submit(stop, database, "queue", "notes")
            until(lambda: held_by_a_lock(database))
        assert (first.begun, second.result(30).begun, second.result(30).pause) == (True, False, first.pause)
    assert database.count("audit WHERE action = 'work.pause'") == 1


def test_a_pause_that_was_begun_anew_is_not_forgotten(database: Database, link: Link) -> None:
    """What a walk found to be over when it began may be in force, or over for another time, when it ends."""
    stop(database, "tenant", "default")
    go(database, "tenant", "default")
    [over] = link.run("list_pauses")
    stop(database, "tenant", "default")
    asked = {"scopes": [over.scope], "names": [over.name], "resumed_ats": [over.resumed_at]}
    link.run("forget_pauses", **asked)
    assert database.count("pauses WHERE resumed_at IS NULL") == 1
    go(database, "tenant", "default")
    link.run("forget_pauses", **asked)
    assert database.count("pauses WHERE resumed_at IS NOT NULL") == 1


def test_a_keeper_waits_for_no_resume(database: Database, link: Link) -> None:
    """A resume that is not committed yet keeps nobody waiting: what it is about is left alone for now."""
    submit(database, 2)
    stop(database, "tenant", "default")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", **WHO)
        assert PauseKeeper().keep(link).set_aside == 0
    assert PauseKeeper().keep(link).put_back == 0
    assert len(release_all(link)) == 2


_LOOKED_AT = """
ALTER TABLE {s}.pauses RENAME TO pauses_themselves;
CREATE VIEW {s}.pauses AS SELECT p.* FROM {s}.pauses_themselves AS p
  RIGHT JOIN (SELECT 1 WHERE (SELECT 1 FROM pg_advisory_xact_lock_shared(4711)) = 1) AS held ON true
"""
_LOOKS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"


def test_of_two_keepers_one_puts_a_job_back(database: Database, link: Link) -> None:
    """The other has seen it aside, and comes to its lock after that: its place, and its hint's time, stay."""
    submit(database)
    stop(database, "tenant", "default")
    assert PauseKeeper().keep(link).set_aside == 1
    go(database, "tenant", "default")
    piece = {"queue": "notes", "after": UUID(int=0), "window": 10, "aside_at": ASIDE}
    database.rows(_LOOKED_AT)
    with database.connect() as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("SELECT pg_advisory_lock(4711)")
        late = pool.submit(link.run, "put_back", **piece)
        until(lambda: database.count(_LOOKS))
        out = "phase = 'released', released_at = now(), release_count = 1, last_error = NULL"
        database.rows(f"UPDATE {{s}}.outbox SET order_key = now(), due_at = now() + interval '10 s', {out}")
        before = database.rows("SELECT * FROM {s}.outbox")
        holder.execute("SELECT pg_advisory_unlock(4711)")
        [looked] = late.result(30)
    assert (looked.looked, looked.moved, looked.skipped) == (1, 0, 1)
    assert database.rows("SELECT * FROM {s}.outbox") == before
    database.rows("DROP VIEW {s}.pauses; ALTER TABLE {s}.pauses_themselves RENAME TO pauses")


def look_again(link: Link) -> list[Any]:
    """Look at the queue again from the beginning of its line."""
    since, since_id = BEGINNING
    return link.run(
        "due_again", runway=10, queues=["notes"], owed_since=[since], owed_id=[since_id], released_since=[since]
    )


@pytest.mark.parametrize(("scope", "name"), SCOPES)
def test_looks_heed_pauses_of_whole_queues(database: Database, link: Link, scope: str, name: str) -> None:
    """Nobody looks into a queue that is paused, where its line is known to begin neither."""
    submit(database)
    stop(database, scope, name)
    for found in (look_again(link), due_queues(link, runway=10)):
        assert bool(found) == (scope in ("kind", "tenant"))


@pytest.mark.parametrize(("scope", "name"), SCOPES)
def test_a_pause_that_is_over_holds_nothing_while_it_is_remembered(
    database: Database, link: Link, scope: str, name: str
) -> None:
    """What comes between the resume and its being forgotten is found, released, claimed, and not taken back."""
    submit(database)
    stop(database, scope, name)
    keeper = PauseKeeper()
    keeper.keep(link)
    stop(database, "queue", "another")
    go(database, scope, name)
    ids = submit(database, 2)
    assert [queue.name for queue in due_queues(link, runway=10)] == ["notes"]
    assert look_again(link)[0].first_due is not None
    assert link.run("set_aside", queue="notes", window=10, aside_at=ASIDE) == []
    assert len(release_all(link)) >= 2
    assert link.run("take_back", batch=10) == []
    assert len(take(link, ids)) == 2


@pytest.mark.parametrize(("first", "second"), [(SCOPES[2], SCOPES[3]), (SCOPES[3], SCOPES[2])])
def test_what_another_pause_holds_stays_aside(
    database: Database, link: Link, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """The end of one pause puts nothing back that the other would set aside again; the end of that one does."""
    submit(database, 2)
    for chosen in (first, second):
        stop(database, *chosen)
    keeper = PauseKeeper()
    assert keeper.keep(link).set_aside == 2
    go(database, *first)
    assert (keeper.keep(link).put_back, database.count("pauses")) == (0, 1)
    go(database, *second)
    assert (keeper.keep(link).put_back, database.count("pauses")) == (2, 0)


def test_what_was_asked_to_run_in_that_year_is_not_put_back(database: Database, link: Link) -> None:
    """A job whose own time is the place out of the line (older releases took such a `run_at`) was set aside by nobody,
    and keeps what its row says.
    """
    submit(database)
    database.rows("UPDATE {s}.jobs SET run_at = %s", ASIDE)
    database.rows("UPDATE {s}.outbox SET due_at = %s, order_key = %s, last_error = 'hint lost'", ASIDE, ASIDE)
    before = database.rows("SELECT * FROM {s}.outbox")
    stop(database, "tenant", "default")
    go(database, "tenant", "default")
    assert PauseKeeper().keep(link).put_back == 0
    assert database.rows("SELECT * FROM {s}.outbox") == before
    [queue] = link.run("queue_overview", aside_at=ASIDE)
    assert (queue.aside, queue.scheduled) == (0, 1)


def test_what_somebody_holds_keeps_the_pause_until_it_is_back(database: Database, link: Link) -> None:
    """A row that is locked while the others are put back is found by a later walk; only then is the pause forgotten."""
    ids = submit(database, 3)
    stop(database, "kind", "test.note")
    keeper = PauseKeeper()
    assert keeper.keep(link).set_aside == 3
    go(database, "kind", "test.note")
    with database.connect(autocommit=False) as holder:
        holder.execute(f"SELECT 1 FROM {database.schema}.outbox WHERE job_id = %s FOR UPDATE", [ids[1]])
        assert keeper.keep(link).put_back == 2
        assert database.count("pauses") == 1
    assert keeper.keep(link).put_back == 1
    assert database.count("pauses") == 0


def test_a_walk_goes_on_where_its_time_was_over(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn moves some, none stands still, and a pause that was resumed in the middle has a walk of its own."""
    monkeypatch.setattr("outbox.keeping.pauses._BATCH", 2)
    submit(database, 5)
    submit(database, payloads=[OtherNote(key=str(n)) for n in range(3)], tenant="b")
    keeper = PauseKeeper()
    for tenant in ("default", "b"):
        stop(database, "tenant", tenant)
    until(lambda: not keeper.keep(link).set_aside)
    go(database, "tenant", "default")
    assert keeper.keep(link, turn_s=0).put_back == 2
    go(database, "tenant", "b")
    turns = [2]
    while database.count("pauses"):
        turns.append(keeper.keep(link, turn_s=0).put_back)
        assert len(turns) < 20
    assert sum(turns) == 8
    assert (len(release_all(link)), len(release_all(link, "others"))) == (5, 3)


def test_each_queue_has_its_turn_though_no_turn_is_long_enough_for_all(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn goes on behind the queue that the last one ended with, in whatever order the database names them."""
    submit(database, 30)
    names = ["b", "B", "a", "a-1", "aa", "C"]
    for place, name in enumerate(names):
        ids = database.rows("SELECT job_id FROM {s}.outbox ORDER BY job_id OFFSET %s LIMIT 5", 5 * place)
        for table, key in (("outbox", "job_id"), ("jobs", "id")):
            query = f"UPDATE {{s}}.{table} SET queue = %s WHERE {key} = ANY(%s)"
            database.rows(query, name, [row[0] for row in ids])
    stop(database, "tenant", "default")
    seen: list[str] = []
    run = Link.run

    def told(self: Link, name: str, /, **parameters: Any) -> list[Any]:
        if name == "set_aside":
            seen.append(parameters["queue"])
        return run(self, name, **parameters)

    monkeypatch.setattr(Link, "run", told)
    # By this clock the turn is over with each look at a front.
    monkeypatch.setattr("outbox.keeping.pauses.time", SimpleNamespace(monotonic=lambda: float(len(seen))))
    keeper = PauseKeeper()
    for _ in names:
        keeper.keep(link, turn_s=0.5)
    assert sorted(seen) == sorted(names)


def test_little_that_is_paused_ends_a_look_at_the_front(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a paused tenant goes on submitting, one look for a few of its jobs does, and not one behind the other."""
    submit(database, 250, tenant="other")
    submit(database, 3, priority=50)
    stop(database, "tenant", "default")
    looks: list[int] = []
    run = Link.run

    def told(self: Link, name: str, /, **parameters: Any) -> list[Any]:
        if name == "set_aside":
            looks.append(parameters["window"])
        return run(self, name, **parameters)

    monkeypatch.setattr(Link, "run", told)
    assert (PauseKeeper().keep(link).set_aside, looks) == (3, [200])


def test_keepers_side_by_side_move_each_row_once(database: Database, link: Link) -> None:
    """Four keepers at once set aside and put back every row, and none fails."""
    submit(database, 400)
    stop(database, "tenant", "default")
    barrier = threading.Barrier(4)

    def turns(number: int) -> tuple[int, int]:
        mine, keeper = database.link(f"test/keeper-{number}"), PauseKeeper()
        barrier.wait(30)
        aside = sum(keeper.keep(mine).set_aside for _ in range(4))
        if barrier.wait(30) == 0:
            go(database, "tenant", "default")
        barrier.wait(30)
        back = sum(keeper.keep(mine).put_back for _ in range(6))
        mine.close()
        return aside, back

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(turns, range(4)))
    assert [sum(column) for column in zip(*done, strict=True)] == [400, 400]
    assert len(release_all(link)) == 400


def test_the_trigger_wakes_a_relay_at_a_resume(database: Database) -> None:
    """A relay that asks to be woken is, by the commit of a resume, though no row is inserted."""
    stop(database, "queue", "notes")
    with psycopg.connect(database.url, autocommit=True) as listener:
        place = listener.execute(f"SELECT 'outbox_' || '{database.schema}.outbox'::regclass::oid").fetchone()
        key = listener.execute(f"SELECT 1869771876::bigint << 32 | '{database.schema}.outbox'::regclass::oid::bigint")
        assert place is not None
        listener.execute(f'LISTEN "{place[0]}"')
        listener.execute("SELECT pg_advisory_lock(%s)", key.fetchone())
        go(database, "queue", "notes")
        assert len(list(listener.notifies(timeout=10, stop_after=1))) == 1
    assert database.count("outbox") == 0
