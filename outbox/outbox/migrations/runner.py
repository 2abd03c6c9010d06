"""Runs the pending revisions on one connection, inside the transaction that it is in.

Alembic's `MigrationContext` is used directly: its `op` and `context` proxies belong to the host whose
migration may be calling us, and are never touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import Script
from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from outbox.migrations.errors import MigrationError
from outbox.migrations.prebuilt import refuse_unusable, taken_as_they_are
from outbox.migrations.revisions import (
    VERSION_TABLE,
    Upgrade,
    pending,
    revision_file_sql,
    script_directory,
    version_table_sql,
)
from outbox.settings.identifiers import schema_identifier

# All that changes how an expression of a definition is read or written: a constant in it is written as the
# session writes such a value.
_HOME: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
}


def current_revision(connection: Connection, schema: str = "outbox") -> str | None:
    """Return the revision that the schema is at, or None where it was never installed.

    Raises:
        MigrationError: the version table holds more than one row, or may not be read.
    """
    schema_identifier(schema)
    with _untranslated(connection, schema):
        try:
            heads = _context(connection, schema, ()).get_current_heads()
        except DBAPIError as error:
            if sqlstate(error) != "42501":
                raise
            raise MigrationError(
                f"this role may not read {VERSION_TABLE}: grant it USAGE on the schema and SELECT on that table"
            ) from None
    if len(heads) > 1:
        raise MigrationError(f"{VERSION_TABLE} holds {len(heads)} rows instead of one: {', '.join(sorted(heads))}")
    return heads[0] if heads else None


def apply_pending(connection: Connection, schema: str, revision: str = "head", *, stepwise: bool = False) -> Upgrade:
    """Apply what is missing up to `revision`. The caller holds the migrators' lock and the transaction.

    `stepwise`: of tables that are in use already, take the next revision only.
    """
    before = current_revision(connection, schema)
    scripts = pending(before, revision)
    if stepwise and before is not None:
        scripts = scripts[:1]
    if not scripts:
        return Upgrade(schema, before, before, ())
    with at_home(connection, "pg_catalog, pg_temp"), _untranslated(connection, schema):
        _create_version_table(connection, schema)
        _context(connection, schema, scripts).run_migrations(
            apply=lambda name: _apply(connection, schema, revision_file_sql(name, schema))
        )
    return Upgrade(schema, before, scripts[-1].revision, tuple(script.revision for script in scripts))


def _apply(connection: Connection, schema: str, sql: str) -> None:
    beforehand = taken_as_they_are(sql)
    if beforehand:
        with at_home(connection, schema_identifier(schema)):
            refuse_unusable(connection, schema, beforehand)
    run_script(connection, sql)


def run_script(connection: Connection, sql: str) -> None:
    """Send several statements as one string, without parameters: no driver then reads `%` or `;` in it."""
    raw = connection.connection.dbapi_connection
    if connection.dialect.driver == "asyncpg" and raw is not None:
        # Its adapter prepares every statement, and a prepared one can't be several: go below it, same
        # transaction.
        raw.run_async(lambda driver: driver.execute(sql))
        return
    # The same holds for a psycopg connection that was told to prepare everything.
    threshold = getattr(raw, "prepare_threshold", None)
    if threshold is not None:
        raw.prepare_threshold = None  # type: ignore[union-attr]
    try:
        connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
    finally:
        if threshold is not None:
            raw.prepare_threshold = threshold  # type: ignore[union-attr]


@contextmanager
def setting(connection: Connection, name: str, value: str) -> Iterator[None]:
    """Set a server parameter for the block and put it back, within the transaction that is open.

    After an error nothing is put back: the transaction, or the savepoint, that fails takes the change with
    it.
    """
    with _settings(connection, {name: value}):
        yield


@contextmanager
def at_home(connection: Connection, search_path: str) -> Iterator[None]:
    """Have DDL read, and definitions written, in one way for the block, whatever role and database have set. As
    `setting`.
    """
    with _settings(connection, _HOME | {"search_path": search_path}):
        yield


@contextmanager
def _settings(connection: Connection, values: Mapping[str, str]) -> Iterator[None]:
    before = connection.execute(select(*(func.current_setting(name) for name in values))).one()
    connection.execute(select(*(func.set_config(name, value, True) for name, value in values.items())))
    yield
    connection.execute(
        select(*(func.set_config(name, value, True) for name, value in zip(values, before, strict=True)))
    )


def sqlstate(error: DBAPIError) -> str:
    """Return the five-character SQLSTATE of a database error, or an empty string if the driver gave none."""
    return str(getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or "")


def _create_version_table(connection: Connection, schema: str) -> None:
    catalog = inspect(connection)
    # Not IF NOT EXISTS: that wants the right to create schemas even where the schema is there already.
    if not catalog.has_schema(schema):
        connection.execute(CreateSchema(schema))
    if not catalog.has_table(VERSION_TABLE, schema=schema):
        run_script(connection, version_table_sql(schema))


def _context(connection: Connection, schema: str, scripts: Sequence[Script]) -> MigrationContext:
    revisions = script_directory().revision_map
    steps = [MigrationStep.upgrade_from_script(revisions, script) for script in scripts]
    return MigrationContext.configure(
        connection,
        opts={"version_table": VERSION_TABLE, "version_table_schema": schema, "fn": lambda *_: steps},
    )


@contextmanager
def _untranslated(connection: Connection, schema: str) -> Iterator[None]:
    """Keep a host's `schema_translate_map` from sending our version table elsewhere."""
    before = connection.get_execution_options().get("schema_translate_map")
    if not before or schema not in before:
        yield
        return
    connection.execution_options(schema_translate_map={k: v for k, v in before.items() if k != schema})
    try:
        yield
    finally:
        connection.execution_options(schema_translate_map=before)
