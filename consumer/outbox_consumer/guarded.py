"""A session inside a fenced transaction, for user code: it can write there, but not end the transaction under the
fence.

Without this guard, a COMMIT or ROLLBACK inside `apply` would part the effects from the state change, and a swallowed
database error would make PostgreSQL answer the COMMIT with a silent ROLLBACK.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from string import whitespace
from typing import Any

import sqlalchemy as sa
from psycopg import Rollback
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from sqlalchemy import event
from sqlalchemy.orm import Session

from outbox.statements import Statements
from outbox.writer import SCHEMA_KEY
from outbox_consumer.errors import TransactionEndedError

__all__ = [
    "changes_session",
    "current_transaction",
    "ends_transaction",
    "guarded_session",
    "may_be_several",
    "returned_clean",
]

# ROLLBACK TO, RELEASE and SAVEPOINT stay allowed: begin_nested() needs them.
_ENDING = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
    r"(?:BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))"
    r"\b",
    re.IGNORECASE | re.DOTALL,
)

# What outlives a transaction on its connection. DO may hide anything.
_SESSION_STATE = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
    r"(?:SET(?!\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)\b)|RESET|DISCARD|LISTEN|LOAD|DO)\b",
    re.IGNORECASE | re.DOTALL,
)
_LOCAL_CALL = re.compile(r"\bset_config\s*\([^()]*,\s*true\s*\)", re.IGNORECASE)
_SESSION_CALL = re.compile(r"\bset_config\b|\bpg_(?:try_)?advisory_lock(?:_shared)?\b", re.IGNORECASE)
_UNCLEAN = "outbox.unclean"

_SYNTAX_ERROR = b"42601"


def ends_transaction(statement: str) -> bool:
    """Tell whether a statement begins or ends a transaction. Pure; looks at the first word alone."""
    return _ENDING.match(statement) is not None


def changes_session(statement: str) -> bool:
    """Tell whether a statement may change its session beyond the transaction: settings, role, session locks. Pure;
    rather too often than too rarely, since it costs a new connection and nothing else.
    """
    if _SESSION_STATE.match(statement):
        return True
    return _SESSION_CALL.search(_LOCAL_CALL.sub("", statement)) is not None


def may_be_several(statement: str) -> bool:
    """Tell whether a text might hold more than one statement; a semicolon may as well stand in a literal. Pure."""
    return ";" in statement.rstrip(";" + whitespace)


def _is_several(driver: Any, statement: str) -> bool:
    """Have the server parse a text, and tell whether it holds more than one statement or none that can be read.

    Its own parser can't be deceived by quotes, comments and function bodies. Several statements in one text are what
    its extended protocol refuses; a savepoint keeps the refusal from the transaction.
    """
    if driver.info.transaction_status is not TransactionStatus.INTRANS:
        return True  # after an error: nothing that would run now is worth the doubt
    with driver.transaction():
        result = driver.pgconn.prepare(b"", statement.encode(driver.info.encoding))
        several: bool = result.error_field(DiagnosticField.SQLSTATE) == _SYNTAX_ERROR
        if result.status is not ExecStatus.COMMAND_OK:
            raise Rollback
    return several


def current_transaction(connection: sa.Connection, statements: Statements) -> str | None:
    """Return the id of the transaction that the connection is in; None if it has written and locked nothing yet."""
    found: str | None = statements.run_within(connection, "current_transaction", {})[0].transaction_id
    return found


@contextmanager
def returned_clean(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Close a pool's connection after the block. One whose session a guarded block has changed is not used again: the
    next job would run under this one's role or settings.
    """
    with connection:
        try:
            yield connection
        finally:
            if not (connection.closed or connection.invalidated) and connection.info.get(_UNCLEAN):
                connection.invalidate()


@contextmanager
def guarded_session(
    connection: sa.Connection, where: str, statements: Statements, transaction_id: str | None
) -> Iterator[Session]:
    """Yield a session whose work stays in the open transaction of `connection`; flush it at the end. It knows its
    installation, for `enqueue`.

    Args:
        connection: ours, from `returned_clean`, in a transaction whose fence has been passed.
        where: what the user calls this place, for messages.
        statements: those of the installation.
        transaction_id: the transaction in which the fence was passed.

    Raises:
        RuntimeError: the block ended the transaction (`TransactionEndedError`; by the driver itself, it may have begun
            another), or swallowed a database error, after which PostgreSQL would commit nothing. The caller's
            transaction must be rolled back.
    """
    with _refusing_ends(connection, where):
        own = {SCHEMA_KEY: statements.schema}
        with Session(bind=connection, join_transaction_mode="rollback_only", info=own) as session:
            yield session
            session.flush()
        _check_alive(connection, where)
        if current_transaction(connection, statements) != transaction_id:
            raise TransactionEndedError(f"{where} ended the transaction; it must neither commit nor roll back")


@contextmanager
def _refusing_ends(connection: sa.Connection, where: str) -> Iterator[None]:
    def on_statement(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if changes_session(statement):
            connection.info[_UNCLEAN] = True
        if ends_transaction(statement):
            raise RuntimeError(f"{where} may not begin or end a transaction; use session.begin_nested() for a part")
        # With parameters the driver uses the extended protocol by itself.
        if not parameters and may_be_several(statement):
            sent = statement if parameters is None else statement.replace("%%", "%")
            if _is_several(cursor.connection, sent):
                raise RuntimeError(f"{where} may not run several statements in one text; run them one by one")

    refused = False

    def on_commit(_connection: Any) -> None:
        nonlocal refused
        refused = True
        raise RuntimeError(f"{where} may not commit; the transaction commits when it returns")

    event.listen(connection, "before_cursor_execute", on_statement)
    event.listen(connection, "commit", on_commit)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", on_statement)
        event.remove(connection, "commit", on_commit)
        if refused and not connection.invalidated:
            # SQLAlchemy takes the transaction for ended now and would return the connection with its locks.
            connection.invalidate()


def _check_alive(connection: sa.Connection, where: str) -> None:
    transaction = connection.get_transaction()
    if transaction is None or not transaction.is_active:
        raise TransactionEndedError(f"{where} ended the transaction; it must neither commit nor roll back")
    driver: Any = connection.connection.dbapi_connection
    status = driver.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise RuntimeError(f"{where} swallowed a database error; use session.begin_nested() around what may fail")
    if status is not TransactionStatus.INTRANS:
        raise TransactionEndedError(f"{where} ended the transaction; it must neither commit nor roll back")
