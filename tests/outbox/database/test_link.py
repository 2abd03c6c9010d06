"""The link: bounded, replaced when in trouble, and never shared over a fork."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Callable

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox.database.link import Link, is_connection_trouble, is_transient
from outbox.releasing.relaying import release
from support.database import Database
from support.jobs import Note


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child and pass on its verdict."""
    with warnings.catch_warnings():
        # A fork beside threads is what a service's process model may do; only the sockets are the matter here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(30)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_has_a_connection_of_its_own(database: Database) -> None:
    """The child opens its own session, closes only that, and the parent's goes on as it was."""
    link = database.link()
    parents = link.connection().info.backend_pid

    def child() -> None:
        assert link.connection().info.backend_pid != parents
        link.run("read_clock")
        link.close()
        gc.collect()
        assert link.connection().info.backend_pid != parents

    in_child(child)
    assert link.connection().info.backend_pid == parents
    assert len(link.run("read_clock")) == 1


def test_raw_rows_hold_bytes_and_whole_numbers(database: Database) -> None:
    """A released hint is what the database sent; its place in line is the same number in any time zone."""
    link = database.link()
    with database.engine().begin() as connection:
        second = enqueue(connection, Note(key="second")).id
        first = enqueue(connection, Note(key="first"), priority=1).id
    link.connection().execute("SET timezone = 'Asia/Kathmandu'")
    hints = release(link, "notes", batch=10, rehint_after_s=10)
    assert [hint.job_id for hint in hints] == [first, second]
    assert [hint.id_bytes for hint in hints] == [first.bytes, second.bytes]
    assert hints[0].order_key < hints[1].order_key
    (kept,) = database.rows("SELECT extract(epoch FROM order_key) FROM {s}.outbox WHERE job_id = %s", first)[0]
    assert hints[0].order_key == (kept - 946_684_800) * 1_000_000


def test_raw_rows_leave_the_connection_as_it_was(database: Database) -> None:
    """Other statements of the link still return ids and instants as such."""
    link = database.link()
    release(link, "notes", batch=1, rehint_after_s=10)
    assert link.run("read_clock")[0].now.tzinfo is not None


def test_closing_in_a_child_first_does_not_end_the_parents_session(database: Database) -> None:
    """A child that closes an inherited link before it uses it leaves the parent's session alone."""
    link = database.link()
    parents = link.connection().info.backend_pid

    def child() -> None:
        link.close()
        gc.collect()

    in_child(child)
    assert link.connection().info.backend_pid == parents
    assert len(link.run("read_clock")) == 1


def test_a_childs_trouble_is_not_the_parents(database: Database) -> None:
    """A child's connection that is killed and replaced leaves the parent's alone."""
    link = database.link()
    parents = link.connection().info.backend_pid

    def child() -> None:
        own = link.connection().info.backend_pid
        with psycopg.connect(database.url, autocommit=True) as killer:
            killer.execute("SELECT pg_terminate_backend(%s)", [own])
        try:
            link.run("read_clock")
        except psycopg.OperationalError:
            link.run("read_clock")

    in_child(child)
    assert link.connection().info.backend_pid == parents


def test_the_writer_in_a_forked_child(database: Database) -> None:
    """A service that disposes of its engine without closing, as SQLAlchemy asks, can submit on both sides of a fork."""
    engine = database.engine(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        enqueue(connection, Note(key="parent"))

    def child() -> None:
        engine.dispose(close=False)
        with engine.connect() as old:
            old.execute(sa.text("SELECT 1 FROM pg_class LIMIT 1"))
            with engine.begin() as rival:
                ref = enqueue(rival, Note(key="child"))
            assert enqueue(old, Note(key="child")).id == ref.id
        engine.dispose()

    in_child(child)
    with engine.begin() as connection:
        assert not enqueue(connection, Note(key="child")).created
    assert database.count("jobs") == 2


def test_a_killed_connection_is_replaced(database: Database) -> None:
    """The statement that meets the dead connection fails with trouble; the next one has a new session."""
    link = database.link()
    first = link.connection().info.backend_pid
    database.rows("SELECT pg_terminate_backend(%s)", first)
    with pytest.raises(psycopg.OperationalError) as caught:
        link.run("read_clock")
    assert is_connection_trouble(caught.value)
    assert link.connection().info.backend_pid != first


def test_a_read_only_server_is_left(database: Database) -> None:
    """After a failover to a standby the link is dropped, so that the next connection may find the primary."""
    link = database.link()
    link.connection().execute("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        link.run("recover_hints", empty_queues=None, busy_after_s=0, gone_after_s=0, batch=1)
    assert link.run("recover_hints", empty_queues=None, busy_after_s=0, gone_after_s=0, batch=1) == []


def test_every_wait_on_the_server_is_bounded(database: Database) -> None:
    """Statement, lock and idle-in-transaction limits are set at start-up, and the name shows."""
    link = database.link("outbox-test/x", statement_timeout_s=2, lock_timeout_s=1)
    names = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name"]
    found = link.connection().execute("SELECT current_setting(n) FROM unnest(%s::text[]) AS n", [names])
    assert [row[0] for row in found] == ["2s", "1s", "8s", "outbox-test/x"]
    with pytest.raises(psycopg.errors.QueryCanceled) as caught, link.transaction() as connection:
        connection.execute("SELECT pg_sleep(30)")
    assert is_transient(caught.value)
    assert not is_connection_trouble(caught.value)


def test_an_error_inside_a_transaction_rolls_it_back(database: Database) -> None:
    """A block that raises leaves nothing, and the connection can be used at once."""
    link = database.link()
    with pytest.raises(ZeroDivisionError), link.transaction() as connection:
        connection.execute("CREATE TABLE public.never ()").rowcount / 0
    assert database.value("SELECT to_regclass('public.never')") is None
    assert len(link.run("read_clock")) == 1


def prepared(link: Link) -> int:
    """Return how many statements the link's session holds prepared."""
    row = link.connection().execute("SELECT count(*) FROM pg_prepared_statements", prepare=False).fetchone()
    return int(row[0]) if row else 0


def test_statements_are_prepared_on_a_session_of_our_own(database: Database) -> None:
    """What runs again and again is parsed once."""
    link = database.link()
    for _ in range(20):
        link.run("read_clock")
    assert prepared(link) == 1


def test_nothing_is_prepared_where_a_pooler_lends_sessions(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that isn't the one that was named may be another one for the next statement."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 0))
    link = database.link()
    for _ in range(20):
        link.run("read_clock")
    assert prepared(link) == 0


def test_a_lost_prepared_statement_does_no_harm(database: Database) -> None:
    """A session that has lost what was prepared there is replaced, the statement runs, and nothing more is prepared."""
    link = database.link()
    for _ in range(5):
        link.run("read_clock")
    link.connection().pgconn.exec_(b"DEALLOCATE ALL")  # below the driver, as a pooler would
    assert len(link.run("read_clock")) == 1
    for _ in range(5):
        link.run("read_clock")
    assert prepared(link) == 0


def test_a_changed_table_costs_one_connection(database: Database) -> None:
    """A prepared statement whose result has another shape after a migration is parsed anew on the next connection."""
    link = database.link()
    with link.transaction() as connection:
        connection.execute("CREATE TABLE public.shape (a integer)")
    database.rows("INSERT INTO public.shape VALUES (1)")

    def look() -> object:
        with link.transaction() as connection:
            return connection.execute("SELECT * FROM public.shape").fetchone()

    for _ in range(5):
        assert look() == (1,)
    database.rows("ALTER TABLE public.shape ADD COLUMN b integer")
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        look()
    assert not is_connection_trouble(caught.value), "in a user's own transaction it is the user's own"
    assert look() == (1, None)


def test_an_unreachable_server_is_trouble() -> None:
    """A refused connection is told apart from a refused statement."""
    link = Link("postgresql://nobody@127.0.0.1:1/nowhere", Database("postgresql://x").statements, name="x")
    with pytest.raises(psycopg.OperationalError) as caught:
        link.run("read_clock")
    assert is_connection_trouble(caught.value)
    assert not is_connection_trouble(ValueError())
    assert not is_transient(psycopg.errors.UniqueViolation())
