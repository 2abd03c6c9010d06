"""A session inside a fenced transaction, for user code: it can write there, but not end the transaction under the
fence.

Without this guard, a COMMIT or ROLLBACK inside `apply` would part the effects from the state change, and a swallowed
database error would make PostgreSQL answer the COMMIT with a silent ROLLBACK.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from psycopg import Rollback
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from sqlalchemy.orm import Session

from outbox.database.statements import Statements
from outbox.database.targets import SCHEMA_KEY
from outbox.processes.barriers import Barrier, hit
from outbox.submitting.writer import ORIGIN_KEY, Origin
from outbox_consumer.basis.errors import MisuseError, TransactionEndedError
from outbox_consumer.basis.statement_kinds import changes_session, ends_transaction, may_be_several

__all__ = [
    "begun_step",
    "checked_session",
    "current_transaction",
    "ended_by_itself",
    "guarded_session",
    "returned_clean",
]

# Kept with the driver's connection.
_UNCLEAN = "outbox.unclean"

# The open guarded blocks, by the identity of the driver's connection that each is on.
_guards: dict[int, _Guard] = {}
_watched: weakref.WeakSet[sa.Dialect] = weakref.WeakSet()
_watching = threading.Lock()

_SYNTAX_ERROR = b"42601"


def _is_several(driver: Any, statement: str) -> bool:
    """Have the server parse a text, and tell whether it holds more than one statement or none that can be read.

    Its own parser can't be deceived by quotes, comments and function bodies. Several statements in one text are what
    its extended protocol refuses; a savepoint keeps the refusal from the transaction.
    """
    if driver.info.transaction_status is not TransactionStatus.INTRANS or driver.pgconn.pipeline_status:
        return True  # after an error, nothing that would run now is worth the doubt; in a pipeline nobody answers yet
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
        while connection.info.get(_UNCLEAN):  # user code has given it back by itself
            connection.invalidate()
        try:
            yield connection
        finally:
            if not (connection.closed or connection.invalidated) and connection.info.get(_UNCLEAN):
                connection.invalidate()


@contextmanager
def begun_step(connection: sa.Connection) -> Iterator[None]:
    """Begin a transaction for a step in mid-run, and commit it after the block."""
    with connection.begin():
        yield
        hit(Barrier.STEP_BEFORE_COMMIT)
    hit(Barrier.STEP_AFTER_COMMIT)


@contextmanager
def guarded_session(
    connection: sa.Connection, where: str, statements: Statements, origin: Origin, transaction_id: str | None
) -> Iterator[Session]:
    """Yield a session as `checked_session` does; then ask the server whether it still is in the same transaction.

    Args:
        transaction_id: the transaction in which the fence was passed.

    Raises:
        RuntimeError: as there, and if the driver itself was made to end the transaction and begin another one
            (`TransactionEndedError`).
    """
    with checked_session(connection, where, statements, origin) as session:
        yield session
    if current_transaction(connection, statements) != transaction_id:
        raise ended_by_itself(where)


@contextmanager
def checked_session(connection: sa.Connection, where: str, statements: Statements, origin: Origin) -> Iterator[Session]:
    """Yield a session whose work stays in the open transaction of `connection`; flush it at the end. It knows its
    installation and its job, for `enqueue`.

    That the transaction is the same one in the end is for the caller to check, before or with its commit.

    Args:
        connection: ours, from `returned_clean`, in a transaction whose fence has been passed.
        where: what the user calls this place, for messages.
        statements: those of the installation.
        origin: the job whose work this is.

    Raises:
        RuntimeError: the block ended the transaction (`TransactionEndedError`), or swallowed a database error, after
            which PostgreSQL would commit nothing. The caller's transaction must be rolled back.
    """
    with _refusing_ends(connection, where):
        own = {SCHEMA_KEY: statements.schema, ORIGIN_KEY: origin}
        with Session(bind=connection, join_transaction_mode="rollback_only", info=own) as session:
            yield session
            session.flush()
        _check_alive(connection, where)


def ended_by_itself(where: str) -> TransactionEndedError:
    """Return the error for user code that ended the transaction it was given."""
    return TransactionEndedError(f"{where} ended the transaction; it must neither commit nor roll back")


class _Guard:
    """What holds for one guarded block. It keeps the driver's connection, so that no other one gets its identity."""

    __slots__ = ("driver", "info", "refused", "where")

    def __init__(self, driver: Any, info: dict[Any, Any], where: str) -> None:
        self.driver = driver
        self.info = info
        self.where = where
        self.refused = False


@contextmanager
def _refusing_ends(connection: sa.Connection, where: str) -> Iterator[None]:
    _watch(connection.dialect)
    driver: Any = connection.connection.dbapi_connection
    # The dictionary itself: a connection that user code closes or invalidates gives it no more.
    guard = _guards[id(driver)] = _Guard(driver, connection.info, where)
    try:
        yield
    finally:
        if _guards.get(id(driver)) is guard:  # unless user code has given it back, and another block has it now
            del _guards[id(driver)]
        if guard.refused and not (connection.closed or connection.invalidated):
            connection.invalidate()


def _watch(dialect: Any) -> None:
    """Have an engine's dialect look at what goes to its driver; only guarded blocks notice.

    Whatever SQLAlchemy sends goes through these methods. Listeners for its events would see the same and make every
    connection, transaction and statement dearer, together by about what the driver takes for a statement.
    """
    if dialect in _watched:
        return
    with _watching:
        if dialect not in _watched:
            for way in ("do_execute", "do_executemany", "do_execute_no_params"):
                setattr(dialect, way, _looked_at(getattr(dialect, way)))
            dialect.do_commit = _unless_guarded(dialect.do_commit)
            _watched.add(dialect)


def _looked_at(execute: Callable[..., None]) -> Callable[..., None]:
    """Return a dialect's way to execute that looks at the statement first. Its arguments are cursor, statement,
    parameters (unless there can be none) and context.
    """

    def look_and_execute(cursor: Any, statement: str, *rest: Any) -> None:
        guard = _guards.get(id(cursor.connection))
        if guard is not None:
            _check(guard, statement, rest[0] if len(rest) > 1 else None)
        execute(cursor, statement, *rest)

    return look_and_execute


def _unless_guarded(commit: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a dialect's way to commit that refuses to within a guarded block."""

    def refuse_or_commit(connection: Any) -> None:
        guard = _guards.get(id(connection.dbapi_connection))
        if guard is not None:
            guard.refused = True
            # SQLAlchemy takes the transaction for ended now: however user code lets go of the connection, it would go
            # back to the pool, or live on detached, with the fence's locks and what was written.
            guard.driver.close()
            raise MisuseError(f"{guard.where} may not commit; the transaction commits when it returns")
        commit(connection)

    return refuse_or_commit


def _check(guard: _Guard, statement: str, parameters: Any) -> None:
    ends, changes, several = _traits(statement) if len(statement) <= _REMEMBERED else _look_at(statement)
    if changes:
        guard.info[_UNCLEAN] = True
    if ends:
        raise MisuseError(f"{guard.where} may not begin or end a transaction; use session.begin_nested() for a part")
    # With parameters the driver uses the extended protocol by itself.
    if several and not parameters:
        sent = statement if parameters is None else statement.replace("%%", "%")
        if _is_several(guard.driver, sent):
            raise RuntimeError(f"{guard.where} may not run several statements in one text; run them one by one")


def _look_at(statement: str) -> tuple[bool, bool, bool]:
    return ends_transaction(statement), changes_session(statement), may_be_several(statement)


# Handlers run the same few texts again and again; long ones hold data and are not kept.
_REMEMBERED = 2000
_traits = lru_cache(maxsize=256)(_look_at)


def _check_alive(connection: sa.Connection, where: str) -> None:
    transaction = connection.get_transaction()
    if transaction is None or not transaction.is_active:
        raise ended_by_itself(where)
    driver: Any = connection.connection.dbapi_connection
    status = driver.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise RuntimeError(f"{where} swallowed a database error; use session.begin_nested() around what may fail")
    if status is not TransactionStatus.INTRANS:
        raise ended_by_itself(where)
