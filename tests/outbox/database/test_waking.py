"""Being woken by writers: only while somebody asks, and never at the price of a job or of another's transaction."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue, enqueue_many
from outbox.database.waking import Wakeups
from outbox.migrations import upgrade_database
from outbox.servers import postgres
from support.database import Database
from support.jobs import Note, notes, submit
from support.servers import SCHEMA
from support.waiting import until

WOKEN = threading.Event()


def relay(database: Database) -> Wakeups:
    """Return what a relay has."""
    return Wakeups(database.link("listen"), WOKEN.set)


@pytest.fixture
def wakeups(database: Database) -> Iterator[Wakeups]:
    """Yield a relay's wake-ups."""
    wakeups = relay(database)
    yield wakeups
    wakeups.close()


def readable(wakeups: Wakeups, within_s: float) -> bool:
    """Wait until there is something to hear; tell whether there is."""
    descriptor = wakeups.fileno()
    return descriptor is not None and bool(select.select([descriptor], [], [], within_s)[0])


def is_woken(wakeups: Wakeups) -> bool:
    """Tell whether a notification comes within a bound."""
    return readable(wakeups, 10) and wakeups.hear()


def channels(database: Database) -> int:
    """Return how many sessions ask for wake-ups."""
    return database.count(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )


def test_a_commit_wakes_a_relay_that_asks(database: Database, wakeups: Wakeups) -> None:
    """Each transaction that submits wakes it once it commits, in whatever way it submits."""
    assert wakeups.fileno() is None
    assert wakeups.ask()
    with database.engine().begin() as connection:
        enqueue(connection, Note(key="one"), schema=database.schema)
        assert not readable(wakeups, 0.05)
    assert is_woken(wakeups)
    with database.engine().begin() as connection:
        enqueue_many(connection, notes(3), schema=database.schema)
    assert is_woken(wakeups)
    assert not wakeups.hear()


def test_a_rollback_wakes_nobody(database: Database, wakeups: Wakeups) -> None:
    """What never happened is not told."""
    assert wakeups.ask()
    with database.engine().connect() as connection:
        enqueue(connection, Note(key="gone"), schema=database.schema)
        connection.rollback()
    submit(database)
    assert is_woken(wakeups)
    assert not wakeups.hear()


def test_nobody_is_woken_who_does_not_ask(database: Database, wakeups: Wakeups) -> None:
    """A busy relay leaves off, and its writers then send nothing; they hold no lock afterwards either."""
    assert wakeups.ask()
    wakeups.leave_off()
    wakeups.leave_off()
    assert channels(database) == 0
    submit(database)
    assert wakeups.ask()
    assert not wakeups.hear()
    submit(database)
    assert is_woken(wakeups)
    assert channels(database) == 1


def test_while_one_relay_asks_others_hear_too_and_take_over(database: Database, wakeups: Wakeups) -> None:
    """Only one session need ask; when it ends, the next to ask takes its place."""
    second = relay(database)
    assert wakeups.ask()
    assert second.ask()
    submit(database)
    assert is_woken(wakeups)
    assert is_woken(second)
    wakeups.close()
    until(lambda: channels(database) == 0)
    assert second.ask()
    assert channels(database) == 1
    submit(database)
    assert is_woken(second)
    second.close()


def test_a_notification_with_an_answer_is_not_missed(database: Database) -> None:
    """One that arrives together with a statement's answer rings at once, as nothing becomes readable for it."""
    link, rung = database.link("listen"), []
    wakeups = Wakeups(link, lambda: rung.append(True))
    assert wakeups.ask()
    submit(database)
    assert readable(wakeups, 10)
    link.run("read_clock")
    assert rung == [True]
    assert wakeups.hear()
    assert not wakeups.hear()
    wakeups.close()


def test_a_lost_session_is_noticed_and_replaced(
    database: Database, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the server ends the session the caller hears of it by looking, polls for a while, and asks anew."""
    assert wakeups.ask()
    database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listen'")
    until(lambda: not wakeups.hear() and wakeups.fileno() is None)
    assert not wakeups.ask()
    monkeypatch.setattr(wakeups, "_not_before", 0.0)
    assert wakeups.ask()
    submit(database)
    assert is_woken(wakeups)


def test_whatever_else_holds_the_lock_asks_nobody(database: Database, wakeups: Wakeups) -> None:
    """A shared lock that was left behind keeps writers from notifying, so the relay is told to look often."""
    key = database.link().run("wake_place")[0].key
    with database.connect() as leftover:
        leftover.execute("SELECT pg_advisory_lock_shared(%s)", [key])
        assert not wakeups.ask()
        leftover.execute("SELECT pg_advisory_unlock_shared(%s)", [key])
    assert wakeups.ask()


def test_a_lock_that_another_session_took_ends_the_asking(
    database: Database, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If what was taken can't be given back, sessions are lent out in between, and the relay never asks again."""
    assert wakeups.ask()
    wakeups._link.run("leave_off_wakes", key=wakeups._key)  # as if it had been another session's
    wakeups.leave_off()
    monkeypatch.setattr(wakeups, "_not_before", 0.0)  # not only for the usual pause
    assert not wakeups.ask()
    assert channels(database) == 0


def test_a_session_that_was_silent_for_long_is_replaced(
    database: Database, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the session of a relay that hangs; one that was only busy opens another before it asks."""
    assert wakeups.ask()
    wakeups.leave_off()
    before = wakeups.fileno()
    pid = wakeups._link.connection().info.backend_pid
    monkeypatch.setattr(wakeups, "_checked_at", wakeups._checked_at - 61)
    assert wakeups.ask()
    assert before is not None
    assert wakeups._link.connection().info.backend_pid != pid
    submit(database)
    assert is_woken(wakeups)


def test_a_writer_without_the_right_to_notify_submits_all_the_same(database: Database, wakeups: Wakeups) -> None:
    """What goes wrong with the wake-up costs nothing but the wake-up."""
    assert wakeups.ask()
    role = f"mute_{uuid4().hex}"
    database.rows(f"CREATE ROLE {role}")
    try:
        database.rows("REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock_shared(bigint) FROM PUBLIC")
        database.rows(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
        database.rows(f"GRANT SELECT, INSERT ON {{s}}.jobs, {{s}}.outbox TO {role}")
        database.rows(f"GRANT SELECT ON {{s}}.queue_bounds, {{s}}.queue_figures TO {role}")
        with database.engine().begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
            assert enqueue(connection, Note(key="k"), schema=database.schema).created
        assert not readable(wakeups, 0.05)
        assert database.count("jobs") == database.count("outbox") == 1
    finally:
        database.rows(f"DROP OWNED BY {role}")
        database.rows(f"DROP ROLE {role}")


def test_behind_a_transaction_pooler_nobody_asks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that belongs to others in between can't listen, so the relay polls."""
    wakeups = relay(database)
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: -1))
        assert not wakeups.ask()
    assert not wakeups.ask()
    assert wakeups.fileno() is None
    assert channels(database) == 0
    wakeups.close()


def test_on_a_server_with_two_phase_commits_nobody_notifies() -> None:
    """A transaction that notified could not be prepared: there the relay polls, and the writer's prepare succeeds."""
    with postgres(private=True, settings={"fsync": "off", "max_prepared_transactions": "5"}) as server:
        url = server.create_database("two_phase")
        upgrade_database(url, SCHEMA)
        database = Database(url)
        wakeups = relay(database)
        assert not wakeups.ask()
        key = database.link().run("wake_place")[0].key
        database.rows("SELECT pg_advisory_lock(%s)", key)  # as if somebody asked all the same
        with database.connect(autocommit=False) as writer:
            engine = sa.create_engine("postgresql+psycopg://", creator=lambda: writer, poolclass=sa.StaticPool)
            with engine.connect() as connection:
                enqueue(connection, Note(key="k"), schema=SCHEMA)
                writer.execute("PREPARE TRANSACTION 'mine'")
        database.rows("COMMIT PREPARED 'mine'")
        assert database.count("jobs") == 1
        wakeups.close()
        database.close()
