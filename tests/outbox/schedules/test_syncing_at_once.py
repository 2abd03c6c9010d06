"""Syncs at the same moment: each is a whole, and waits for none that has nothing to do with it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import (
    list_schedules,
    sync_schedules,
)
from outbox.schedules import syncing
from support.database import Database
from support.waiting import until

from .conftest import SAID, daily, sync


def test_many_processes_may_sync_at_once(database: Database) -> None:
    """Instances that start together end well, and each schedule is there once."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(4, timeout=60)
    engine = database.engine()

    def start(number: int) -> None:
        try:
            barrier.wait()
            for turn in range(5):
                declared = [daily(f"s{n}", priority=(number + turn) % 3) for n in range(10 if turn % 2 else 7)]
                with engine.begin() as connection:
                    sync_schedules(connection, declared[::-1] if number % 2 else declared, source="billing", **SAID)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    assert database.count("schedules") == 10


def waits_for_a_lock(database: Database) -> bool:
    """Tell whether a session of this database waits for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(database.rows(query))


def test_of_two_syncs_at_once_the_last_stands_as_a_whole(database: Database) -> None:
    """It changes back what it would have left alone before the other one, and disables what that has added."""
    sync(database, daily("a"), daily("b"), daily("c"))
    sync(database, daily("a"), daily("b"))
    engine = database.engine(poolclass=sa.NullPool)
    last: list[Any] = []
    with engine.begin() as connection:
        other = [daily(name, priority=2) for name in "abcd"]
        assert sync_schedules(connection, other, source="billing", **SAID).added == ["d"]
        thread = threading.Thread(target=lambda: last.append(sync(database, daily("a", priority=1), daily("b"))))
        thread.start()
        until(lambda: waits_for_a_lock(database))
    thread.join(60)
    (done,) = last
    assert (sorted(done.changed), done.disabled, done.unchanged) == (["a", "b"], ["c", "d"], [])
    with engine.connect() as connection:
        stored = [(view.name, view.priority, view.state) for view in list_schedules(connection)]
    assert stored[:2] == [("a", 1, "active"), ("b", 0, "active")]
    assert [state for _, _, state in stored[2:]] == ["disabled", "disabled"]


def test_a_sync_waits_for_none_of_another_source(database: Database) -> None:
    """Nor for one in another schema; nor do two syncs of a source in one transaction wait for each other."""
    engine = database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        sync_schedules(connection, [daily("a")], source="billing", **SAID)
        assert sync_schedules(connection, [daily("a")], source="billing", **SAID).unchanged == ["a"]
        with engine.begin() as other:
            other.execute(sa.text("SET LOCAL lock_timeout = '10s'"))
            assert sync_schedules(other, [daily("z")], source="other", **SAID).added == ["z"]
    keys = {syncing._lock_key(schema, source) for schema in ("outbox", "second") for source in ("billing", "other")}
    assert len(keys) == 4
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_a_sync_of_an_older_snapshot_fails_where_another_has_changed_what_it_declares(database: Database) -> None:
    """Instead of saying that it agrees with what has not been so any more."""
    sync(database, daily("a"))
    engine = database.engine(poolclass=sa.NullPool, isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        assert [view.priority for view in list_schedules(connection)] == [0]
        sync(database, daily("a", priority=2))
        with pytest.raises(sa.exc.OperationalError, match="could not serialize"):
            sync_schedules(connection, [daily("a")], source="billing", **SAID)
