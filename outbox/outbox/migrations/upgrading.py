"""The two ways to upgrade: inside a transaction of the caller's, or as a whole run of its own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import SystemRandom
from typing import Any, Final

from sqlalchemy import Connection, Engine, NullPool, func, select
from sqlalchemy.engine.mock import MockConnection
from sqlalchemy.exc import DBAPIError

from outbox.migrations.errors import MigrationBusy, MigrationError
from outbox.migrations.offline import emit
from outbox.migrations.revisions import Upgrade, lock_key
from outbox.migrations.runner import apply_pending, setting, sqlstate
from outbox.settings.identifiers import schema_identifier
from outbox.settings.urls import sqlalchemy_engine

ENGINE_OPTIONS: Final[dict[str, Any]] = {"poolclass": NullPool, "connect_args": {"prepare_threshold": None}}
"""For engines of our own: nothing stays prepared in a pooler's session for its next user."""

_HOST_LOCK_WAIT: Final = "60s"
_STATEMENT_TIMEOUT: Final = "15min"
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
# Lock timeout, deadlock, serialisation failure: rolled back by the server, and nothing was wrong with it.
_RETRY: Final = frozenset({"55P03", "40P01", "40001"})


def upgrade(
    connection: Connection | MockConnection,
    schema: str = "outbox",
    *,
    revision: str = "head",
    offline_since: str | None = None,
) -> Upgrade:
    """Create or upgrade the tables on `connection`, in the transaction that it is in; the caller commits.

    This is the call for a host's own Alembic migration: `upgrade(op.get_bind(), schema="outbox")`. It works
    with any SQLAlchemy driver for PostgreSQL and leaves the host's `op`, search path and timeouts as they
    were. A schema that is up to date, or past `revision`, is left alone. Under `alembic upgrade --sql` the
    DDL is written to the script instead, from `offline_since` (None: from nothing) to `revision`, since no
    database can be asked where it stands.

    Another migrator of the same schema is waited for, up to 60 seconds.

    Raises:
        MigrationBusy: the other migrator did not end in time.
        SchemaTooNew: a newer release has upgraded this schema.
        MigrationError: the connection is in autocommit mode, or the revision is unknown.
        sqlalchemy.exc.DBAPIError: PostgreSQL refused; the host's own `lock_timeout` holds for every DDL lock.
    """
    schema_identifier(schema)
    if isinstance(connection, MockConnection):
        return emit(connection, schema, since=offline_since, revision=revision)
    _refuse_autocommit(connection)
    try:
        with setting(connection, "lock_timeout", _HOST_LOCK_WAIT):
            connection.execute(select(func.pg_advisory_xact_lock(lock_key(schema))))
    except DBAPIError as error:
        if sqlstate(error) != "55P03":
            raise
        raise MigrationBusy(f"another migration of this schema has not ended within {_HOST_LOCK_WAIT}") from error
    return apply_pending(connection, schema, revision)


def upgrade_database(
    target: str | Engine | None,
    schema: str = "outbox",
    *,
    revision: str = "head",
    lock_timeout_s: float = 2.0,
    wait_s: float = 60.0,
    on_wait: Callable[[str], None] | None = None,
) -> Upgrade:
    """Create the tables in one transaction of its own, or upgrade them in one for each revision.

    A revision and its stamp are committed together, and none locks two tables that are in use: so a user's
    transaction never meets the upgrade in a deadlock, and a run that was killed goes on where it stood once
    it is started again.

    No lock is waited for longer than `lock_timeout_s` seconds, so that the work which queues up behind the
    upgrade stalls no longer than that; then the attempt is rolled back and tried again after a growing,
    jittered pause, for `wait_s` seconds for each transaction. Any number of instances may start at once: each
    revision is applied by one of them, and all end well.

    `target` is a database URL in any form that the settings take, an Engine, or None for libpq's own
    variables (PGHOST, …). `on_wait` is told, in one line, why an attempt is put off.

    Raises:
        MigrationBusy: the locks were not to be had within `wait_s`. What was applied before stays.
        SchemaTooNew: a newer release has upgraded this schema.
        MigrationError: the revision is unknown.
        sqlalchemy.exc.DBAPIError: PostgreSQL refused, or can't be reached.
    """
    schema_identifier(schema)
    with _engine(target) as engine:

        def attempt() -> tuple[Upgrade | None, str]:
            return _attempt(engine, schema, revision, lock_timeout_s)

        done = _patiently(attempt, wait_s, on_wait, "nothing was changed")
        step = done
        while step.applied:
            step = _patiently(attempt, wait_s, on_wait, f"the tables are at revision {step.after}")
            done = done.then(step)
    return done


def _patiently(
    attempt: Callable[[], tuple[Upgrade | None, str]],
    wait_s: float,
    on_wait: Callable[[str], None] | None,
    standing: str,
) -> Upgrade:
    """Try until it is done; `standing` says in the error how far the upgrade had come."""
    deadline = time.monotonic() + wait_s
    pause = _PAUSE_FIRST_S
    while True:
        done, reason = attempt()
        if done is not None:
            return done
        delay = SystemRandom().uniform(pause / 2, pause)
        if time.monotonic() + delay >= deadline:
            raise MigrationBusy(f"gave up after {wait_s:g} s: {reason}; {standing}, run it again later")
        if on_wait is not None:
            on_wait(f"{reason}; trying again in {delay:.1f} s")
        time.sleep(delay)
        pause = min(_PAUSE_MAX_S, pause * 2)


def _attempt(engine: Engine, schema: str, revision: str, lock_timeout_s: float) -> tuple[Upgrade | None, str]:
    """Try once. Returns what was done, or None and why it has to be tried again."""
    try:
        with (
            engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            _bound_waits(connection, lock_timeout_s)
            # Tried, not waited for, and held by the transaction: a pooler may sit between, and nobody idles
            # on a lock.
            if not connection.scalar(select(func.pg_try_advisory_xact_lock(lock_key(schema)))):
                return None, "another migration of this schema is running"
            return apply_pending(connection, schema, revision, stepwise=True), ""
    except DBAPIError as error:
        if sqlstate(error) not in _RETRY:
            raise
        return None, "another session holds a lock on one of the tables"


def _bound_waits(connection: Connection, lock_timeout_s: float) -> None:
    for name, value in (
        ("lock_timeout", f"{max(1, round(lock_timeout_s * 1000))}ms"),
        ("statement_timeout", _STATEMENT_TIMEOUT),
    ):
        connection.execute(select(func.set_config(name, value, True)))
    # A killed migrator's session would otherwise keep its locks until its statement ends. Not every platform
    # has it.
    with suppress(DBAPIError), connection.begin_nested():
        connection.execute(select(func.set_config("client_connection_check_interval", "1s", True)))


@contextmanager
def _engine(target: str | Engine | None) -> Iterator[Engine]:
    if isinstance(target, Engine):
        yield target
        return
    engine = sqlalchemy_engine(target, application_name="outbox-db", **ENGINE_OPTIONS)
    try:
        yield engine
    finally:
        engine.dispose()


def _refuse_autocommit(connection: Connection) -> None:
    raw = connection.connection.dbapi_connection
    if getattr(raw, "autocommit", False) is True:
        raise MigrationError(
            "the connection is in autocommit mode, but an upgrade has to be one transaction: "
            "call it outside Alembic's autocommit_block()"
        )
