"""Signs of life: told at a pace, forgotten in time, and never more than a line in the log where they can't be."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest

from outbox.database import trouble
from outbox.database.link import Link
from outbox.database.trouble import Fault
from outbox.leases import presence
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Ability
from outbox.leases.presence import LIVE_S, Presence, Role, list_processes
from support.database import Database
from support.waiting import until

ABLE = [Ability("a", 1, 9, 1, "h"), Ability("a", 2, 9, 1, "h")]


@pytest.fixture
def told(database: Database, link: Link) -> Presence:
    """Return a presence that has announced itself."""
    told = Presence(Role.CONSUMER, worker_identity(), queues=["q"], abilities=ABLE)
    told.tell(link)
    return told


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Collect the log, with the limits on it as new."""
    trouble._limited.cache_clear()
    caplog.set_level(logging.INFO)
    yield caplog
    trouble._limited.cache_clear()


def test_a_process_is_listed_until_it_leaves(database: Database, link: Link, told: Presence) -> None:
    """It is shown with what it runs, as live for a minute after its last sign, and is gone with its orderly end."""
    database.clock.stop()
    [found] = list_processes(link)
    assert (found.role, found.queues, found.runs, found.live) == (Role.CONSUMER, ("q",), ("a 1", "a 2"), True)
    database.clock.advance(LIVE_S + 1)
    assert list_processes(link)[0].quiet_s == pytest.approx(found.quiet_s + LIVE_S + 1)
    assert not list_processes(link)[0].live
    told.leave(link)
    assert list_processes(link) == []


def test_it_is_told_every_ten_seconds(
    database: Database, link: Link, told: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at every turn of a loop, it writes at its own pace; the start stays what it was."""
    first = list_processes(link)[0]
    told.tell(link)
    assert list_processes(link)[0] == first
    monkeypatch.setattr(told, "_next_at", 0.0)
    told.tell(link)
    second = list_processes(link)[0]
    assert (second.seen_at > first.seen_at, second.started_at) == (True, first.started_at)


def test_renewals_are_heap_only(
    database: Database, link: Link, told: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal touches no index."""
    for _ in range(20):
        monkeypatch.setattr(told, "_next_at", 0.0)
        told.tell(link)
    link.close()
    query = "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = %s AND relname = 'processes'"
    until(lambda: database.value("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'processes'") == 20)
    assert database.value(query, database.schema) == 0


def test_who_ended_badly_is_forgotten_after_a_day(database: Database, link: Link, told: Presence) -> None:
    """Somebody else's sign of life clears away what has been silent for a day, and nothing younger."""
    database.clock.advance(86_000)
    Presence(Role.RELAY, worker_identity()).tell(link)
    assert [process.role for process in list_processes(link)] == [Role.CONSUMER, Role.RELAY]
    database.clock.advance(1000)
    Presence(Role.RELAY, worker_identity()).tell(link)
    assert [process.role for process in list_processes(link)] == [Role.RELAY, Role.RELAY]


def test_who_has_told_nothing_since_the_clock_was_set_back_is_forgotten(database: Database, link: Link) -> None:
    """A relay that ended badly while the clock was ahead would seem to live until it comes there: it is cleared away at
    once, and whoever lives tells again.
    """
    alive, dead = (Presence(Role.RELAY, worker_identity()) for _ in range(2))
    dead.tell(link)
    alive.tell(link)
    database.clock.advance(-3600)
    assert link.run("relay_lives", live_s=LIVE_S)[0].lives
    Presence(Role.CONSUMER, worker_identity()).tell(link)
    assert [process.role for process in list_processes(link)] == [Role.CONSUMER]
    assert not link.run("relay_lives", live_s=LIVE_S)[0].lives
    alive._next_at = 0.0
    alive.tell(link)
    assert len(list_processes(link)) == 2


@pytest.mark.parametrize("harm", ["DROP TABLE {s}.processes", "REVOKE ALL ON {s}.processes FROM CURRENT_USER"])
def test_a_database_that_cant_take_it_costs_a_line(
    database: Database, lines: pytest.LogCaptureFixture, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing table or right is told once, with what to do; the link works on, and nobody asks again at once."""
    link = database.link()
    if "REVOKE" in harm:
        database.rows("CREATE ROLE presence_test NOSUPERUSER")
        database.rows("GRANT USAGE ON SCHEMA {s} TO presence_test")
        link.run("backend_pid")
        link.connection().execute("SET ROLE presence_test")
        expected = Fault.RIGHTS
    else:
        database.rows(harm)
        expected = Fault.TABLES
    try:
        told = Presence(Role.CONSUMER, worker_identity())
        told.tell(link)
        told.tell(link)
        told.leave(link)
        assert [record.getMessage() for record in lines.records] == [expected.value]
        assert link.run("backend_pid")
        assert told._next_at > presence.time.monotonic() + 200
    finally:
        link.close()
        if "REVOKE" in harm:
            database.rows("DROP OWNED BY presence_test")
            database.rows("DROP ROLE presence_test")


def test_a_server_that_is_away_is_asked_again(database: Database, lines: pytest.LogCaptureFixture) -> None:
    """A cut connection is replaced by the next sign, and the log says that it works again."""
    link = database.link()
    told = Presence(Role.CONSUMER, worker_identity())
    database.rows("SELECT pg_terminate_backend(%s)", link.run("backend_pid")[0].pid)
    told.tell(link)
    told._next_at = 0.0
    told.tell(link)
    assert len(lines.records) == 2
    assert list_processes(link)


def test_nothing_else_is_caught(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours is no database error and must not hide."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Link, "run", broken)
    with pytest.raises(ZeroDivisionError):
        Presence(Role.RELAY, worker_identity()).tell(link)
    assert not issubclass(ZeroDivisionError, psycopg.Error)
