"""The DDL as text: for people who run it with psql, and for a host's `alembic upgrade --sql`."""

from typing import Any, Final

from sqlalchemy.engine.mock import MockConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement

from outbox.migrations.errors import MigrationError
from outbox.migrations.revisions import (
    HERE,
    Upgrade,
    lock_key,
    pending,
    render,
    revision_sql,
    version_table_sql,
)

_HEADING: Final = "-- The tables of outbox-relay: psql -v ON_ERROR_STOP=1 -f THIS_FILE"


class _Script(ExecutableDDLElement):
    """SQL text that SQLAlchemy's compiler leaves as it is: no bind names, no doubled percent signs."""

    def __init__(self, sql: str) -> None:
        self.sql = sql


@compiles(_Script)
def _as_it_is(element: _Script, _compiler: Any, **_: Any) -> str:
    return element.sql


def sql_script(schema: str = "outbox", *, revision: str = "head", since: str | None = None) -> str:
    """Return a runnable script, transactions and version stamps included, that does what the upgrade does.

    `since` is the revision that the database is at; None means that nothing is installed. Run against another
    state than that, the script fails and changes nothing. What is new is one transaction, what is in use gets
    one for each revision, so that no two tables are locked at once; each checks where the tables stand.

    Raises:
        MigrationError: a revision is unknown.
    """
    if since is None:
        return "\n".join([_HEADING, *_transaction(schema, None, revision)])
    parts = [_HEADING]
    for script in pending(since, revision):
        parts.extend(_transaction(schema, since, script.revision))
        since = script.revision
    return "\n".join(parts)


def _transaction(schema: str, since: str | None, revision: str) -> list[str]:
    begin = render(HERE / "offline_begin.sql", schema, lock_key=str(lock_key(schema)))
    body, _ = _body(schema, since, revision)
    return [begin, *body, render(HERE / "offline_commit.sql", schema)]


def emit(connection: MockConnection, schema: str, *, since: str | None, revision: str) -> Upgrade:
    """Write the DDL to a host's offline script, inside the transaction which that script has opened itself.

    Raises:
        MigrationError: a revision is unknown, or the schema's name holds a tab, which Alembic would rewrite.
    """
    if "\t" in schema:
        raise MigrationError("a schema name that holds a tab can't go through Alembic's offline mode: use a connection")
    body, done = _body(schema, since, revision)
    for part in body:
        # Alembic ends every statement that it writes with a semicolon of its own.
        connection.execute(_Script(part.strip().removesuffix(";")))
    return done


def _body(schema: str, since: str | None, revision: str) -> tuple[list[str], Upgrade]:
    scripts = pending(since, revision)
    if not scripts:
        return [], Upgrade(schema, since, since, ())
    after = scripts[-1].revision
    parts = [revision_sql(script, schema) for script in scripts]
    if since is None:
        install = [render(HERE / "offline_install.sql", schema), version_table_sql(schema)]
        parts = [*install, *parts, render(HERE / "offline_stamp.sql", schema, revision=after)]
    else:
        parts.append(render(HERE / "offline_restamp.sql", schema, revision=after, since=since))
    return parts, Upgrade(schema, since, after, tuple(script.revision for script in scripts))
