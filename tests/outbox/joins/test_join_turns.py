"""Looking through the open sets in turns: bounded pieces, slow servers, many keepers at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, cast
from uuid import UUID

import pytest
import sqlalchemy as sa
from psycopg.errors import QueryCanceled

from outbox import cancel
from outbox.database.link import Link
from outbox.joins import keeping as join_keeping
from outbox.joins.keeping import JoinWatch
from outbox.leases.ending import complete
from outbox.submitting.submission import HELD
from support.database import Database
from support.jobs import OtherNote, release_all, running
from support.sets import due, ids_of, wait_for

pytestmark = pytest.mark.usefixtures("sound")


def test_all_members_are_noted_now_and_then(database: Database, link: Link) -> None:
    """Behind a first job that never succeeds, what became of the others is noted all the same."""
    claimed = running(database, link, 3)
    wait_for(database, ids_of(claimed))
    complete(link, [item.lease for item in claimed[1:]])
    watch = JoinWatch()
    watch._all_at = float("inf")
    watch.close(link)
    assert database.count("join_members WHERE seen IS NOT NULL") == 0
    watch._all_at = 0.0
    watch.close(link)
    assert database.count("join_members WHERE seen IS NOT NULL") == 2


def test_sets_are_looked_through_piece_by_piece(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sets there are, each gets its turn."""
    monkeypatch.setattr(join_keeping, "_WINDOW", 3)
    monkeypatch.setattr(join_keeping, "_WINDOWS", 2)
    (claimed,) = running(database, link)
    waiting = [wait_for(database, ids_of([claimed]), OtherNote(key=f"w{number}")) for number in range(10)]
    complete(link, [claimed.lease])
    watch = JoinWatch()
    assert [watch.close(link) for _ in range(3)] == [6, 4, 0]
    assert {hint.job_id for hint in release_all(link, "others")} == set(waiting)


def test_many_keepers_and_ends_at_once_start_each_job_once(database: Database, link: Link) -> None:
    """Sets with common members, ended by one thread while two others keep time: each starts once, and none too soon."""
    claimed = running(database, link, 60)
    rng = random.Random(7)
    sets = {}
    for number in range(30):
        members = rng.sample(claimed, 5)
        sets[wait_for(database, ids_of(members), OtherNote(key=f"s{number}"))] = set(ids_of(members))
    over = threading.Event()
    ended: set[UUID] = set()
    early: list[UUID] = []

    def keep() -> int:
        mine, watch, started = database.link(), JoinWatch(), 0
        last = False
        while not last:
            last = over.is_set()
            started += watch.close(mine)
            hints = release_all(mine, "others")
            early.extend(hint.job_id for hint in hints if not sets[hint.job_id] <= ended)
        return started

    with ThreadPoolExecutor(2) as pool:
        keepers = [pool.submit(keep) for _ in range(2)]
        for item in claimed:
            ended.add(item.lease.job_id)  # before it is so: a keeper may see it at once
            complete(link, [item.lease])
        over.set()
        started = sum(keeper.result() for keeper in keepers)
    assert early == []
    assert started == database.count("joins WHERE outcome = 'started'") == 30
    assert database.count("outbox WHERE queue = 'others' AND release_count = 1") == 30


class Slow:
    """A link to a server that can't do everything in a statement's time."""

    def __init__(self, link: Link, too_much: Callable[[str, dict[str, Any]], bool]) -> None:
        self._link = link
        self._too_much = too_much

    def run(self, statement: str, **parameters: Any) -> list[Any]:
        """Run a statement, or say that it took too long."""
        if self._too_much(statement, parameters):
            raise QueryCanceled(statement)
        return self._link.run(statement, **parameters)

    def transaction(self) -> AbstractContextManager[Any]:
        """Run a block in one transaction."""
        return self._link.transaction()


def slow(link: Link, too_much: Callable[[str, dict[str, Any]], bool]) -> Link:
    """Return the link as `Slow`."""
    return cast("Link", Slow(link, too_much))


def complete_sets(database: Database, link: Link, count: int, members: int = 3) -> list[UUID]:
    """Return the jobs that wait for so many sets whose members have all succeeded since."""
    claimed = running(database, link, members)
    waiting = [wait_for(database, ids_of(claimed), OtherNote(key=f"c{number}")) for number in range(count)]
    complete(link, [item.lease for item in claimed])
    return waiting


@pytest.mark.parametrize("statement", ["moved_joins", "see_members", "close_joins"])
def test_a_server_that_can_do_less_in_time_is_asked_for_less(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Sets are closed in the end, whichever of the statements takes too long as it is."""
    monkeypatch.setattr(join_keeping, "_LEAST", 2)
    monkeypatch.setattr(join_keeping, "_WINDOW", 40)
    monkeypatch.setattr(join_keeping, "_MEMBERS", 40)
    complete_sets(database, link, 6)

    def too_much(name: str, given: dict[str, Any]) -> bool:
        return name == statement and given.get("window", len(given.get("join_ids", []))) > 3

    watch = JoinWatch()
    started = 0
    for _ in range(4):
        with suppress(QueryCanceled):
            started += watch.close(slow(link, too_much))
    assert started == database.count("joins WHERE outcome = 'started'") == 6


@pytest.mark.parametrize("statement", ["moved_joins", "see_members", "close_joins"])
def test_a_server_that_is_quick_again_is_asked_for_more_again(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """What was made small for a while grows back to what it was at first, for each of the statements."""
    for name, value in (("_LEAST", 2), ("_WINDOW", 12), ("_MEMBERS", 12), ("_SETS", 12), ("_AIM_S", 600.0)):
        monkeypatch.setattr(join_keeping, name, value)
    asked: list[int] = []
    is_slow = True

    def too_much(name: str, given: dict[str, Any]) -> bool:
        if name != statement:
            return False
        asked.append(int(given.get("window", len(given.get("join_ids", [])))))
        return is_slow and asked[-1] > 3

    watch = JoinWatch()
    for round_ in range(2):
        key = f"r{round_}"
        claimed = running(database, link, 3)
        for number in range(12):
            wait_for(database, ids_of(claimed), OtherNote(key=f"{key}-{number}"))
        complete(link, [item.lease for item in claimed])
        while database.count("joins WHERE closed_at IS NULL"):
            with suppress(QueryCanceled):
                watch.close(slow(link, too_much))
        if is_slow:
            assert (max(asked), min(asked)) == (12, 2)
            is_slow = False
    for _ in range(4):
        watch._all_at = float("inf")
        watch.close(slow(link, too_much))
    portion = {"moved_joins": watch._windows, "see_members": watch._members, "close_joins": watch._sets}[statement]
    assert portion.size == 12


def test_large_sets_are_closed_together(database: Database, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets that are looked at one by one, each being a piece or more, take one statement more and not one each."""
    monkeypatch.setattr(join_keeping, "_MEMBERS", 2)
    monkeypatch.setattr(join_keeping, "_TURN_S", 60.0)
    complete_sets(database, link, 4, members=5)
    asked: list[str] = []

    def note(name: str, _given: dict[str, Any]) -> bool:
        asked.append(name)
        return False

    assert JoinWatch().close(slow(link, note)) == 4
    assert asked.count("see_members") >= 10
    assert asked.count("close_joins") == 1


def test_a_turn_closes_what_is_ready_as_it_ends(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one statement beyond its time, however many sets wait for it and however slow that is; an error comes out."""
    monkeypatch.setattr(join_keeping, "_TURN_S", -1.0)
    monkeypatch.setattr(join_keeping, "_SETS", 2)
    waiting = complete_sets(database, link, 6)
    watch, asked = JoinWatch(), []
    first = UUID(int=0)
    link.run("see_members", join_ids=waiting, held_at=HELD, after_join=first, after_member=first, window=100)
    watch._ready = sorted(waiting)

    def too_much(name: str, _given: dict[str, Any]) -> bool:
        asked.append(name)
        return name == "close_joins" and asked.count(name) == 1

    with pytest.raises(QueryCanceled):
        watch.close(slow(link, too_much))
    assert not watch.busy, "trouble has pauses of its own"
    assert [watch.close(slow(link, too_much)) for _ in range(2)] == [2, 2]
    assert watch.busy
    assert [name for name in asked if name != "limit_statements"] == ["close_joins"] * 3


def test_a_piece_that_cannot_be_done_holds_up_no_other(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is told, the sets behind it start, and it has its turn again."""
    monkeypatch.setattr(join_keeping, "_SETS", 2)
    waiting = sorted(complete_sets(database, link, 6))
    watch = JoinWatch()

    def too_much(_name: str, given: dict[str, Any]) -> bool:
        return waiting[0] in given.get("join_ids", []) and "after_join" in given

    with pytest.raises(QueryCanceled):
        watch.close(slow(link, too_much))
    assert watch.close(slow(link, too_much)) == 4
    assert watch.close(link) == 2


def test_what_was_noted_is_kept_whatever_fails_later(database: Database, link: Link) -> None:
    """Each piece of members is a transaction of its own, so that the next look begins behind it."""
    complete_sets(database, link, 2)
    with pytest.raises(QueryCanceled):
        JoinWatch().close(slow(link, lambda name, _given: name == "close_joins"))
    assert database.count("join_members WHERE seen IS NULL") == 0


def test_many_members_are_noted_a_few_at_a_time(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few a statement looks at, the sets start, and those that nobody waits for any more are let go of."""
    monkeypatch.setattr(join_keeping, "_MEMBERS", 2)
    waiting = complete_sets(database, link, 3, members=5)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, waiting[1], by="me", reason="x")
    assert JoinWatch().close(link) == 2
    assert sorted(database.rows("SELECT seen, count(*) FROM {s}.join_members GROUP BY seen")) == [
        ("moot", 5),
        ("succeeded", 10),
    ]
    assert database.count("joins WHERE outcome = 'moot'") == 1


def test_a_turn_ends_by_its_time_and_the_next_goes_on_there(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a set as well: what keeps time on the same thread is never far, and no member is looked at again."""
    monkeypatch.setattr(join_keeping, "_TURN_S", -1.0)  # over after the first statement
    monkeypatch.setattr(join_keeping, "_MEMBERS", 2)
    complete_sets(database, link, 3, members=5)
    watch, asked = JoinWatch(), []

    def note(name: str, _given: dict[str, Any]) -> bool:
        asked.append(name)
        return False

    started = []
    while sum(started) < 3:
        before = len(asked)
        started.append(watch.close(slow(link, note)))
        assert len([name for name in asked[before:] if name != "limit_statements"]) <= 2
        assert watch.busy, "the next turn is to come at once"
    assert asked.count("see_members") == 8, "15 members, two at a time"
    watch.close(link)
    assert not watch.busy


@pytest.mark.parametrize("table", ["joins", "join_members", "jobs"])
def test_no_statement_keeps_the_thread_for_long(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Each has a limit of its own, much shorter than the link's, for instance where somebody has locked a table."""
    monkeypatch.setattr(join_keeping, "_STATEMENT_S", 0.05)
    monkeypatch.setattr(join_keeping, "_TURN_S", 60.0)
    (waiting,) = complete_sets(database, link, 1)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(f'LOCK TABLE "{database.schema}".{table} IN ACCESS EXCLUSIVE MODE'))
        with pytest.raises(QueryCanceled):
            JoinWatch().close(link)
    monkeypatch.undo()
    assert due(link) == [waiting]


def test_a_look_locks_no_set_in_which_nothing_has_moved(database: Database, link: Link) -> None:
    """Nor does it write anything there, be it the look through all, and though its neighbour is closed."""
    still, moved = running(database, link, 2)
    waiting = wait_for(database, ids_of([still]))
    wait_for(database, ids_of([moved]), OtherNote(key="other"))
    complete(link, [moved.lease])
    before = database.rows("SELECT xmin::text FROM {s}.joins WHERE job_id = %s", waiting)[0][0]
    both = [job_id for (job_id,) in database.rows("SELECT job_id FROM {s}.joins")]
    asked: dict[str, Any] = {"join_ids": both, "held_at": HELD}
    [seen] = link.run("see_members", **asked, after_join=UUID(int=0), after_member=UUID(int=0), window=100)
    assert (seen.looked_at, seen.noted) == (2, 1)
    [closed] = link.run("close_joins", **asked)
    assert closed.outcome == "started"
    row = database.rows("SELECT xmin::text, xmax::text FROM {s}.joins WHERE job_id = %s", waiting)
    assert row == [(before, "0")]
