"""What a loop says of a database that fails it: the right sort of trouble, in one line, once for all loops."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.exc import ProgrammingError

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.database.trouble import AGAIN, Fault, Trouble, fault_of, reason_of
from outbox.reading.queues import list_queues
from support.database import Database

FATAL = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  '


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> str:
    """Return a logger's name that no other test has used, with everything captured."""
    name = f"outbox.test-{uuid4().hex}"
    caplog.set_level(logging.DEBUG, name)
    return name


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (psycopg.errors.InvalidPassword("no"), Fault.REFUSED),
        (psycopg.errors.InvalidCatalogName("no"), Fault.REFUSED),
        (psycopg.OperationalError(FATAL + 'password authentication failed for user "u"'), Fault.REFUSED),
        (psycopg.OperationalError(FATAL + 'role "u" does not exist'), Fault.REFUSED),
        (psycopg.OperationalError(FATAL + 'no pg_hba.conf entry for host "h", user "u"'), Fault.REFUSED),
        (psycopg.OperationalError("fe_sendauth: no password supplied"), Fault.REFUSED),
        (psycopg.OperationalError(FATAL + "unsupported startup parameter: options"), Fault.POOLER),
        (psycopg.OperationalError(FATAL + "unsupported startup parameter in options: jit"), Fault.POOLER),
        (psycopg.OperationalError(FATAL + "the database system is starting up"), Fault.AWAY),
        (psycopg.OperationalError("connection failed: Connection refused"), Fault.AWAY),
        (psycopg.errors.ConnectionTimeout("connection timeout expired"), Fault.AWAY),
        (psycopg.errors.AdminShutdown("bye"), Fault.AWAY),
        (psycopg.errors.DeadlockDetected("deadlock"), Fault.AWAY),
        (psycopg.errors.UndefinedTable("none"), Fault.TABLES),
        (psycopg.errors.InvalidSchemaName("none"), Fault.TABLES),
        (psycopg.errors.UndefinedFunction("none"), Fault.TABLES),
        (psycopg.errors.InsufficientPrivilege("no"), Fault.RIGHTS),
        (ProgrammingError("SELECT 1", {}, psycopg.errors.UndefinedTable("none")), Fault.TABLES),
        (psycopg.errors.UniqueViolation("twice"), Fault.UNKNOWN),
        (ZeroDivisionError(), Fault.UNKNOWN),
    ],
)
def test_faults(error: Exception, fault: Fault) -> None:
    """Every sort of error is told by who can mend it."""
    assert fault_of(error) is fault


@pytest.fixture
def weak_role(database: Database) -> Iterator[str]:
    """Yield a role that may do nothing with the tables."""
    name = f"weak_{uuid4().hex[:12]}"
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'right'").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("which", ["role", "database", "tables", "rights", "port"])
def test_a_real_server_is_understood(
    database: Database, weak_role: str, which: str, logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What PostgreSQL itself says is classified, and told in one record without a traceback."""
    keywords = psycopg.conninfo.conninfo_to_dict(database.url)
    changes, fault = {
        "role": ({"user": "nobody_at_all"}, Fault.REFUSED),
        "database": ({"dbname": "not_there_at_all"}, Fault.REFUSED),
        "tables": ({}, Fault.TABLES),
        "rights": ({"user": weak_role, "password": "right"}, Fault.RIGHTS),
        "port": ({"host": "127.0.0.1", "port": 1}, Fault.AWAY),
    }[which]
    url = psycopg.conninfo.make_conninfo(**(keywords | changes))
    schema = "not_there" if which == "tables" else "outbox"
    link = Link(url, statements_for(schema), name="test")
    with pytest.raises(psycopg.Error) as caught:
        list_queues(link)
    link.close()
    assert fault_of(caught.value) is fault
    Trouble("loop", 1, logger=logger).report(caught.value)
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == (fault.value, None)
    assert record.levelno == (logging.WARNING if fault is Fault.AWAY else logging.ERROR)


def test_only_unknown_errors_carry_a_traceback(logger: str, caplog: pytest.LogCaptureFixture) -> None:
    """A defect is told with its traceback, and for each loop by itself."""
    for loop in ("a", "b"):
        Trouble(loop, 1, logger=logger).report(ZeroDivisionError("bug"))
    assert [record.getMessage() for record in caplog.records] == ["the loop failed"] * 2
    assert all(record.exc_info for record in caplog.records)


def test_loops_share_the_limit_on_lines(logger: str, caplog: pytest.LogCaptureFixture) -> None:
    """Four loops that meet one fault write one line, and one more when it is over; another fault has its own."""
    loops = [Trouble(name, 1, logger=logger) for name in "abcd"]
    for loop in loops:
        loop.report(psycopg.OperationalError("connection failed: Connection refused"))
    loops[0].report(psycopg.errors.InsufficientPrivilege("permission denied"))
    for loop in loops:
        loop.over()
        loop.over()
    assert [record.getMessage() for record in caplog.records] == [Fault.AWAY.value, Fault.RIGHTS.value, AGAIN]


def test_tables_of_another_version_are_one_fault(
    database: Database, logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the upgrade each loop misses something else, and all are told in one line, which names the remedy."""
    for name in ("jobs", "outbox", "processes", "pauses"):
        with psycopg.connect(database.url) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute(sql.SQL("SELECT 1 FROM not_there.{}").format(sql.Identifier(name)))
        Trouble(name, 1, logger=logger).report(caught.value)
    assert [record.getMessage() for record in caplog.records] == [Fault.TABLES.value]
    assert "outbox db upgrade" in Fault.TABLES.value


def test_pauses_grow_and_start_anew(logger: str) -> None:
    """The pause grows up to its bound, and is short again after a success."""
    loop = Trouble("loop", 5, logger=logger)
    pauses = [loop.report(psycopg.OperationalError("away")) for _ in range(40)]
    assert 0 < pauses[0] <= 0.1
    assert 2.5 <= pauses[-1] <= 5
    loop.over()
    assert loop.report(psycopg.OperationalError("away")) <= 0.1


def test_the_reason_leaves_the_servers_details_out(database: Database) -> None:
    """PostgreSQL's details may repeat the values of a row; they are not part of the reason."""
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TEMP TABLE t (secret text PRIMARY KEY)")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("INSERT INTO t VALUES ('canary'), ('canary')")
    assert "canary" in str(caught.value)
    assert "canary" not in reason_of(caught.value)
