"""One database connection of one of our threads: opened when needed, dropped at the first sign of trouble, bounded
in every wait.

Each loop that keeps something alive owns a link of its own, so that no handler and no other loop can take its
connection away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from outbox.database.arrays import know_arrays
from outbox.database.instants import know_instants
from outbox.database.sessions import is_own_session
from outbox.database.statements import Statements
from outbox.processes.connection_trouble import is_connection_trouble, is_transient
from outbox.processes.forking import let_go_in_children
from outbox.settings.urls import database_conninfo

__all__ = ["ONE_PLAN", "Link", "is_connection_trouble", "is_transient"]

Row = TypeVar("Row")

# What a prepared statement may meet: it isn't in this session, another of its name is, or the tables have changed.
_LENT_CODES = frozenset({"26000", "42P05"})
_PREPARED_CODES = _LENT_CODES | {"0A000"}
# A statement that has run so often is prepared.
_PREPARE_AFTER = 2
# A plan is kept for as long as its tables' statistics, which may stem from a moment in which they were all but empty:
# none may walk through a table. (The price of a walk that can't be avoided would have the server compile it, too.)
_KEPT_PLANS = "-c enable_seqscan=off -c jit=off"
# For a session whose statements each have one plan that is good whatever the parameters. By itself the server plans
# anew, each time, what takes an array: it reckons with ten entries where there is one. That costs more than the run.
ONE_PLAN = "-c plan_cache_mode=force_generic_plan"
# A role or a database may have other defaults. A day of a session's own time zone may have 23 hours, and a claim at
# another level fails where it should pass over a row.
_OWN_WAYS = (
    r"-c TimeZone=UTC -c DateStyle=ISO -c standard_conforming_strings=on "
    r"-c default_transaction_isolation=read\ committed"
)


class Link:
    """A lazily opened autocommit connection, for use by one thread at a time.

    Args:
        url: the database, in any form that `outbox.settings.urls` reads; None takes libpq's own variables.
        statements: the installation's statements.
        name: what pg_stat_activity shows, for example "outbox-relay/release".
        statement_timeout_s: the longest that one statement may take on the server.
        lock_timeout_s: the longest that one statement may wait for a lock.
        durable: False where a commit may be forgotten by a crash of the server, because it is found out again.
        session: more settings for the session, as in libpq's `options`.

    A forked child opens a connection of its own and leaves the parent's alone.

    Statements are prepared where the session is ours alone: parsing and planning them costs as much as running them for
    a few jobs. A transaction pooler may stand in between, for it gives itself away: the backend that answers isn't the
    one that it named. Then nothing is prepared, and no other state of a session is relied on. (A pooler that refuses
    the `options` start-up parameter needs `pooled=True`. One that drops it leaves the time limits to the role: a
    warning tells where that has none.) What a role or
    database sets for its sessions otherwise (DateStyle, TimeZone, array_nulls, …) changes nothing.
    """

    def __init__(
        self,
        url: str | None,
        statements: Statements,
        *,
        name: str,
        statement_timeout_s: float = 15,
        lock_timeout_s: float = 5,
        pooled: bool = False,
        durable: bool = True,
        session: str = "",
    ) -> None:
        self.statements = statements
        self._arguments: dict[str, Any] = dict(database_conninfo(url, application_name=name))
        if not pooled:
            limits = (
                f"-c statement_timeout={int(statement_timeout_s * 1000)} -c lock_timeout={int(lock_timeout_s * 1000)} "
                f"-c idle_in_transaction_session_timeout={int(statement_timeout_s * 4000)} {_KEPT_PLANS} "
                f"{_OWN_WAYS}"
            )
            if not durable:
                limits += " -c synchronous_commit=off"
            self._arguments["options"] = " ".join(filter(None, (self._arguments.get("options"), limits, session)))
        self._may_prepare = not pooled
        self._connection: psycopg.Connection[Any] | None = None
        self._owner = os.getpid()
        self._inherited: list[psycopg.Connection[Any]] = []

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open connection, opening one if need be. Raises `psycopg.OperationalError` if the server can't
        be reached.
        """
        self._leave_to_parent()
        if self._connection is None or self._connection.closed:
            self._connection = self._open()
        return self._connection

    def run(self, statement: str, /, **parameters: Any) -> list[Any]:
        """Run one statement in a transaction of its own. A connection in trouble is dropped before the error
        leaves.
        """
        return self._once_more(lambda connection: self.statements.run(connection, statement, **parameters))

    def run_raw(self, statement: str, make_row: Callable[[Any], Row], /, **parameters: Any) -> list[Row]:
        """Run one statement as `run` does and return `make_row` of each row's values.

        For statements that return very many rows. A uuid comes as its 16 bytes and an instant as the whole number of
        microseconds since 2000, since making the usual objects of them takes longer than reading the row.
        """
        return self._once_more(lambda connection: self._fetch(connection, statement, make_row, parameters, raw=True))

    def run_raw_behind(
        self, first: str, statement: str, make_row: Callable[[Any], Row], /, **parameters: Any
    ) -> list[Row]:
        """Run one statement as `run_raw` does, in a transaction in which `first`, with the same parameters, takes the
        locks: so the statement sees all that was waited for.
        """

        def fetch(connection: psycopg.Connection[Any]) -> list[Row]:
            with connection.transaction():
                self._fetch(connection, first, tuple, parameters, raw=True)
                return self._fetch(connection, statement, make_row, parameters, raw=True)

        return self._once_more(fetch)

    def run_rows(self, statement: str, make_row: Callable[[Any], Row], /, **parameters: Any) -> list[Row]:
        """Run one statement as `run` does and return `make_row` of each row's values, which are of the usual types."""
        return self._once_more(lambda connection: self._fetch(connection, statement, make_row, parameters, raw=False))

    def _fetch(
        self,
        connection: psycopg.Connection[Any],
        statement: str,
        make_row: Callable[[Any], Row],
        parameters: dict[str, Any],
        *,
        raw: bool,
    ) -> list[Row]:
        with connection.cursor(row_factory=lambda _cursor: make_row, binary=True) as cursor:
            if raw:
                cursor.adapters.register_loader("uuid", ByteaBinaryLoader)
                cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
            return cursor.execute(self.statements.for_psycopg(statement), parameters).fetchall()

    @contextmanager
    def transaction(self, *, outermost: bool = False) -> Iterator[psycopg.Connection[Any]]:
        """Run a block in one transaction; commit at its end, roll back on an exception.

        Within another one it is no more than a savepoint; with `outermost`, for what must not keep its locks for longer
        than the block, that is a `RuntimeError`.
        """
        if outermost and self._within_transaction():
            raise RuntimeError("a transaction of its own was asked for inside another one")
        with self._dropping_on_trouble() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        """Close the connection, if there is one. The link may be used again."""
        self._leave_to_parent()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._arguments, autocommit=True, prepare_threshold=None)
        let_go_in_children(connection)
        know_arrays(connection)
        know_instants(connection)
        if self._may_prepare and is_own_session(connection, self.statements):
            connection.prepare_threshold = _PREPARE_AFTER
        return connection

    def _leave_to_parent(self) -> None:
        """After a fork, put the parent's connection aside: closing it would end the parent's session."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        if self._connection is not None:
            self._inherited.append(self._connection)
            self._connection = None

    @contextmanager
    def _dropping_on_trouble(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            yield self.connection()
        except psycopg.Error as error:
            if is_connection_trouble(error) or error.sqlstate in _PREPARED_CODES:
                self.close()
                # Whatever lends the session out does not give itself away: it is never trusted again.
                self._may_prepare = self._may_prepare and error.sqlstate not in _LENT_CODES
            raise

    def _once_more(self, execute: Callable[[psycopg.Connection[Any]], list[Row]]) -> list[Row]:
        """Execute; if what is prepared on the connection is of no use, once more on another: nothing has run then."""
        within = self._within_transaction()
        try:
            with self._dropping_on_trouble() as connection:
                return execute(connection)
        except psycopg.Error as error:
            if within or error.sqlstate not in _PREPARED_CODES:
                raise
        with self._dropping_on_trouble() as connection:
            return execute(connection)

    def _within_transaction(self) -> bool:
        connection = self._connection
        return connection is not None and connection.info.transaction_status is not TransactionStatus.IDLE
