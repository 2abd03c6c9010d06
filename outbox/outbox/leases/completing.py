"""The two ends of a transaction in which `apply` writes: its beginning with the fence in one message, and its commit
with a last check in another.

The statement of the fence is large, and parsing and planning it takes longer than running it. So it is prepared where
the session is known to be our own, and runs as it is where a pooler may stand in between.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.sql import Literal

from outbox.database.statements import Statements
from outbox.leases import ending
from outbox.leases.ending import NOWHERE, Course
from outbox.leases.leasing import Lease

__all__ = ["begin_completed", "commit_same"]

# Kept with the driver's connection: what enable_seqscan is there, or that nothing may be prepared.
_PREPARED = "outbox.prepared"
_NOT_OURS = ""
# What a server says that doesn't have the statement, has another one, or has tables that were changed since.
_UNPREPARED = frozenset({"26000", "42P05", "0A000"})
_DIVISION_BY_ZERO = "22012"
# A function that an earlier job has called may have set what outlives its transaction.
_CLEAN = "RESET SESSION AUTHORIZATION; RESET ALL"
_OK = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def begin_completed(
    connection: sa.Connection, statements: Statements, lease: Lease, course: Course = NOWHERE
) -> str | None:
    """Begin a transaction on the server that marks one job succeeded, and return the transaction's id. None: the lease
    is lost, or an effect of the job is pending or uncertain, and nothing was written.

    What follows in the transaction is behind the fence: from here on nobody else can end or claim the job until the
    commit.

    Args:
        connection: of an engine on psycopg; SQLAlchemy's transaction has begun and nothing has been sent in it.

    Raises:
        sqlalchemy.exc.DBAPIError: as for any statement. A connection in doubt is not used again.
    """
    seq_scans = connection.info.get(_PREPARED)
    if seq_scans is None:
        seq_scans = connection.info[_PREPARED] = _prepare(connection, statements)
    if seq_scans != _NOT_OURS:
        driver = _driver(connection)
        values = f"'{_hex(lease.job_id)}', '{_hex(lease.token)}', '{seq_scans}', {_values(driver, course)}"
        execute = f"EXECUTE {_name(statements)}({values})"
        # A plan is kept, so it must suit tables of any size, and now and then the server makes it anew.
        held = f"{_held_first(statements, lease)}; " if course.may_owe else ""
        text = f"{_CLEAN}; BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan = off; {held}{execute}"
        try:
            result = _send(driver, text.encode(driver.info.encoding))
        except psycopg.Error as error:
            if error.sqlstate not in _UNPREPARED:
                raise _given_up(connection, error, "complete_one") from error
            connection.info[_PREPARED] = _NOT_OURS
            driver.rollback()
        else:
            return result.get_value(0, 0).decode() if result.ntuples else None
    return ending.complete_within(connection, statements, lease, course)


def commit_same(connection: sa.Connection, statements: Statements, transaction_id: str) -> bool:
    """Commit the driver's transaction if it is the one named; SQLAlchemy's own commit then finds nothing to send.
    False: it is another one, because user code has ended the one named; roll back.

    Raises:
        sqlalchemy.exc.DBAPIError: as for any commit. The connection is not used again.
    """
    driver = _driver(connection)
    check = statements.for_psycopg("same_transaction") % {"transaction_id": f"'{int(transaction_id)}'"}
    try:
        _send(driver, f"{check}; COMMIT".encode())
    except psycopg.Error as error:
        # A COMMIT that fails ends the transaction.
        failed_before_commit = driver.pgconn.transaction_status == TransactionStatus.INERROR
        if error.sqlstate == _DIVISION_BY_ZERO and failed_before_commit:
            return False
        raise _given_up(connection, error, "same_transaction; COMMIT") from error
    return True


def _prepare(connection: sa.Connection, statements: Statements) -> str:
    """Prepare on the server if the session is our own; return what enable_seqscan is there, or `_NOT_OURS`.

    A transaction pooler hands out process numbers of its own making. Outside of a transaction, which a failure would
    end.
    """
    driver = _driver(connection)
    try:
        found = _send(driver, statements.for_psycopg("backend_pid").encode())
        if int(found.get_value(0, 0)) != driver.pgconn.backend_pid:
            return _NOT_OURS
        _send(driver, _preparation(statements).encode(driver.info.encoding))
        return str(found.get_value(0, 1).decode())
    except psycopg.Error as error:
        if error.sqlstate in _UNPREPARED:
            return _NOT_OURS
        raise _given_up(connection, error, "PREPARE complete_one") from error


@cache
def _name(statements: Statements) -> str:
    """Return the name on the server. Other installations and versions, which may share a server's session behind some
    pooler, have others.
    """
    return f"outbox_{hashlib.sha256(_body(statements).encode()).hexdigest()[:16]}"


def _preparation(statements: Statements) -> str:
    return f"PREPARE {_name(statements)} (uuid, uuid, text, float8, text, boolean) AS {_body(statements)}"


def _body(statements: Statements) -> str:
    return statements.for_psycopg("complete_one") % {
        "job_id": "$1",
        "token": "$2",
        "seq_scans": "$3",
        "started_s": "$4",
        "effects": "$5",
        "may_owe": "$6",
    }


def _held_first(statements: Statements, lease: Lease) -> str:
    """Return the statement that holds the row still before an effect is looked for, with its values."""
    values = {"job_ids": f"'{{{_hex(lease.job_id)}}}'", "tokens": f"'{{{_hex(lease.token)}}}'"}
    return statements.for_psycopg(ending.HELD_FIRST) % values


def _values(driver: psycopg.Connection[Any], course: Course) -> str:
    """Return an attempt's course as literals."""
    started = "NULL" if course.started_s is None else repr(float(course.started_s))
    effects = course.effects_text
    touched = "NULL" if effects is None else Literal(effects).as_string(driver)
    return f"{started}, {touched}, {str(course.may_owe).lower()}"


def _hex(number: UUID) -> str:
    return f"{number.int:032x}"


def _driver(connection: sa.Connection) -> psycopg.Connection[Any]:
    driver: Any = connection.connection.dbapi_connection
    return driver  # type: ignore[no-any-return]


def _send(driver: psycopg.Connection[Any], text: bytes) -> Any:
    """Run statements in one message and return the last one's result; whatever fails keeps the rest from being run."""
    result = driver.pgconn.exec_(text)
    if result.status in _OK:
        return result
    if driver.pgconn.status == ConnStatus.BAD and result.error_field(DiagnosticField.SQLSTATE) is None:
        # libpq's own words, not the server's: the driver would take them for an error without a kind.
        raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
    raise error_from_result(result, encoding=driver.info.encoding)


def _given_up(connection: sa.Connection, error: psycopg.Error, statement: str) -> sa.exc.DBAPIError:
    """Let go of a connection after an error on it; return the error as SQLAlchemy would raise it."""
    connection.invalidate(error)
    return sa.exc.DBAPIError(statement, None, error, hide_parameters=True, connection_invalidated=True)
