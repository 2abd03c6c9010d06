"""Which statements would end a transaction under the fence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox.submitting.writer import Origin
from outbox_consumer.basis.daemons import DaemonExecutor
from outbox_consumer.basis.guarded import guarded_session
from outbox_consumer.basis.statement_kinds import changes_session, ends_transaction, may_be_several
from support.database import Database

ORIGIN = Origin(UUID(int=1), None)


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "commit work",
        " \n\t rollback;",
        "ROLLBACK TRANSACTION",
        "/* why\nnot */ Commit and chain",
        "-- a comment\nEND",
        ";;ABORT",
        "BEGIN",
        "start   transaction isolation level serializable",
        "PREPARE TRANSACTION 'x'",
        "COMMIT PREPARED 'x'",
        "/* a /* nested */ comment */ COMMIT",
        "/* one *//* another */;-- and\n/**/ COMMIT",
    ],
)
def test_statements_that_end_a_transaction(statement: str) -> None:
    """Every spelling of an end, or of a new beginning, is seen."""
    assert ends_transaction(statement)


@pytest.mark.parametrize("look", [ends_transaction, changes_session])
def test_looking_at_a_statement_takes_no_longer_than_its_text(look: Callable[[str], bool]) -> None:
    """However many comments and blanks stand before its first word, and whatever comes of them: nobody's heartbeat
    waits for it.
    """
    for piece in ("/* line */\n", "-- line\n", " ;", "/*", "/**/"):
        for end in ("SELECT 1", ""):
            before = time.thread_time()
            assert not look(piece * 20_000 + end)
            assert time.thread_time() - before < 5


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'COMMIT'",
        "INSERT INTO commits VALUES (1)",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT a",
        "ROLLBACK TO SAVEPOINT a",
        "rollback work to a",
        "PREPARE p AS SELECT 1",
        "WITH endings AS (SELECT 1) SELECT * FROM endings",
        "",
        "endless",
    ],
)
def test_statements_that_do_not(statement: str) -> None:
    """Savepoints, and words that only look alike, pass."""
    assert not ends_transaction(statement)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [("SELECT 1", False), ("SELECT 1; ;\n", False), ("SELECT ';'", True), ("SELECT 1; SELECT 2", True)],
)
def test_texts_that_might_hold_several_statements(statement: str, expected: bool) -> None:
    """A semicolon at the end is nothing; anywhere else the server is asked."""
    assert may_be_several(statement) is expected


@contextmanager
def guarded(database: Database) -> Iterator[Session]:
    """Yield a guarded session in a transaction that has an id, as one that has passed a fence has."""
    with database.engine().connect() as connection, connection.begin():
        mine = connection.execute(sa.text("SELECT CAST(pg_current_xact_id() AS text)")).scalar_one()
        with guarded_session(connection, "here", database.statements, ORIGIN, mine) as session:
            yield session


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SET app.tenant = 'a'", True),
        ("-- why\n set role someone", True),
        ("SET SESSION AUTHORIZATION x", True),
        ("RESET ALL", True),
        ("DEALLOCATE ALL", True),
        ("SELECT set_config('app.tenant', :tenant, false)", True),
        ("SELECT set_config('a', 'b', true), set_config('c', 'd', false)", True),
        ("SELECT pg_try_advisory_lock(1)", True),
        ("SET LOCAL app.tenant = 'a'", False),
        ("set transaction read only", False),
        ("SET CONSTRAINTS ALL DEFERRED", False),
        ("SELECT set_config('app.tenant', :tenant, true)", False),
        ("SELECT pg_advisory_xact_lock(1)", False),
        ("UPDATE settings SET role = 1", False),
    ],
)
def test_statements_that_outlive_their_transaction(statement: str, expected: bool) -> None:
    """What changes the session is seen; what ends with the transaction costs no connection."""
    assert changes_session(statement) is expected


def test_semicolons_within_one_statement_pass(database: Database) -> None:
    """Literals, comments and bodies may hold semicolons; an error stays the error that it was."""
    with guarded(database) as session:
        assert session.execute(sa.text("SELECT 'a;b', 5 % 2 /* ; */ -- ; c")).one() == ("a;b", 1)
        session.execute(sa.text("DO $$ BEGIN PERFORM 1; END $$;"))
        session.execute(sa.text("CREATE TABLE public.here (note text); "))
        session.execute(sa.text("INSERT INTO public.here VALUES ('x;' || :note)"), {"note": "y;z"})
        session.connection().exec_driver_sql("UPDATE public.here SET note = note || ';'")
        with pytest.raises(sa.exc.ProgrammingError, match="nowhere"), session.begin_nested():
            session.execute(sa.text("SELECT ';' FROM nowhere"))
        assert session.execute(sa.text("SELECT note FROM public.here")).scalar_one() == "x;y;z;"


def test_several_statements_are_refused_after_an_error_too(database: Database) -> None:
    """What follows a database error may not smuggle an end in behind a savepoint's name."""
    with guarded(database) as session:
        session.execute(sa.text("SAVEPOINT a"))
        with pytest.raises(sa.exc.DBAPIError):
            session.execute(sa.text("SELECT 1 / 0"))
        with pytest.raises(RuntimeError, match="several statements"):
            session.execute(sa.text("ROLLBACK TO a; COMMIT; BEGIN"))
        session.execute(sa.text("ROLLBACK TO a"))


WAYS: dict[str, Callable[[sa.Connection], object]] = {
    "text": lambda connection: connection.execute(sa.text("COMMIT")),
    "driver's text": lambda connection: connection.exec_driver_sql("COMMIT"),
    "no parameters": lambda connection: connection.exec_driver_sql(
        "SELECT 5 % 2; COMMIT", execution_options={"no_parameters": True}
    ),
    "many": lambda connection: connection.execute(sa.text("COMMIT -- :n"), [{"n": 1}, {"n": 2}]),
    "transaction": lambda connection: connection.commit(),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_through_sqlalchemy_ends_the_transaction(database: Database, way: str) -> None:
    """Each is refused within the block, and nothing of it is sent."""
    database.rows("CREATE TABLE public.here (note text)")

    def use() -> None:
        with guarded(database) as session:
            session.execute(sa.text("INSERT INTO public.here VALUES ('in')"))
            WAYS[way](session.connection())

    with pytest.raises(RuntimeError, match="here may not"):
        use()
    assert database.count("SELECT 1 FROM public.here") == 0


def test_outside_of_the_block_an_engine_is_like_any_other(database: Database) -> None:
    """What was guarded once may end its own transactions, also while another connection's block is open."""
    database.rows("CREATE TABLE public.here (note text)")
    engine = database.engine()
    with engine.connect() as first, engine.connect() as second:
        for _ in range(2):
            with first.begin():
                mine = first.execute(sa.text("SELECT CAST(pg_current_xact_id() AS text)")).scalar_one()
                with guarded_session(first, "here", database.statements, ORIGIN, mine) as session:
                    session.execute(sa.text("INSERT INTO public.here VALUES ('first')"))
                    second.execute(sa.text("INSERT INTO public.here VALUES ('second')"))
                    second.commit()
            with first.begin():
                first.execute(sa.text("INSERT INTO public.here VALUES ('after')"))
    assert database.count("SELECT 1 FROM public.here") == 6


def test_daemon_executor_runs_at_most_its_size_and_leaves_no_thread_to_wait_for() -> None:
    """Calls queue up behind `size` daemon threads; after the end no call is taken and idle threads go."""
    executor, gate, peak, lock = DaemonExecutor(3, "test-daemon"), threading.Event(), [0, 0], threading.Lock()

    def call(number: int) -> int:
        with lock:
            peak[0] += 1
            peak[1] = max(peak)
        assert gate.wait(30)
        with lock:
            peak[0] -= 1
        return number

    futures = [executor.submit(call, number) for number in range(10)]
    failing = executor.submit(lambda: 1 / 0)
    gate.set()
    assert [future.result(10) for future in futures] == list(range(10))
    assert isinstance(failing.exception(10), ZeroDivisionError)
    assert peak[1] <= 3
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("test-daemon")]
    assert 1 <= len(threads) <= 3
    assert all(thread.daemon for thread in threads)
    executor.shutdown()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with pytest.raises(RuntimeError):
        executor.submit(call, 1)
