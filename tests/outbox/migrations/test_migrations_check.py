"""Comparing the live schema with the expected one, on every PostgreSQL at hand, and telling what is wrong."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from outbox.errors import OutboxError
from outbox.migrations import (
    MigrationError,
    check_schema,
    compare,
    expected_schema,
    head,
    live_schema,
    revisions,
    upgrade_database,
)
from outbox.migrations.describe import describe
from outbox.migrations.description import _packaged, expected_revision, table_names
from outbox.servers import postgres
from outbox.servers.found import Source
from support.database import Database

from .conftest import NEWEST, NEXT, engine_for, scratch


@pytest.fixture
def installed(shared_database: Database) -> Iterator[Connection]:
    """Give a connection to a database with an installation, whose changes are rolled back."""
    with engine_for(shared_database.url).connect() as connection:
        yield connection


def findings(connection: Connection, *changes: str) -> list[str]:
    """Make changes and return what the check says."""
    for change in changes:
        connection.execute(text(change))
    return check_schema(connection).lines()


def test_the_packaged_description_is_what_the_migrations_make(engine: Engine) -> None:
    """The description in the package was made anew after the last change of a migration."""
    assert expected_revision() == head()
    with engine.connect() as connection:
        assert describe(connection) == _packaged()[1]


@pytest.mark.slow
def test_a_newer_postgresql_gives_the_same_description() -> None:
    """PostgreSQL 18, whose catalog lists more, is described word for word as the older ones are."""
    with postgres(private=True, sources=[Source.WHEEL]) as server, scratch(server.url) as url:
        engine = engine_for(url)
        upgrade_database(engine)
        with engine.connect() as connection:
            assert connection.dialect.server_version_info >= (18,)
            assert describe(connection) == _packaged()[1]
            assert check_schema(connection).ok


def test_before_the_installation_everything_is_pending(engine: Engine) -> None:
    """An empty database is not installed, and the check says what to run."""
    with engine.connect() as connection:
        check = check_schema(connection)
    assert not check.ok
    assert check.lines()[0] == "pending: 0001 (the schema is not installed; run 'outbox db upgrade')"
    assert check.pending[-1] == head()


def test_a_pending_revision_is_named(installed: Connection, next_migration: Callable[[str], Path]) -> None:
    """A database one revision behind is told apart from one that differs."""
    next_migration("")
    assert findings(installed) == [f"pending: {NEXT} (the schema is at revision {NEWEST}; run 'outbox db upgrade')"]


def test_a_newer_schema_is_told_apart(installed: Connection) -> None:
    """A revision that this release doesn't know is reported as newer, not as a difference."""
    lines = findings(installed, "UPDATE outbox.outbox_schema_version SET version_num = '0099'")
    assert lines == [
        f"newer: the schema is at revision 0099, this release knows only up to {head()}; update this release"
    ]


WAYS = {
    "TimeZone": "Europe/Berlin",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "quote_all_identifiers": "on",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
}


@pytest.mark.parametrize("name", WAYS)
def test_a_sessions_own_ways_are_no_difference(installed: Connection, name: str) -> None:
    """However a session writes instants, names and numbers, a sound schema is as expected, and they stay."""
    installed.execute(text(f"SET LOCAL {name} = '{WAYS[name]}'"))
    before = installed.scalar(text(f"SHOW {name}"))
    assert check_schema(installed).lines() == [f"as expected at revision {NEWEST}"]
    assert installed.scalar(text(f"SHOW {name}")) == before


def test_an_installation_is_the_same_in_any_session(engine: Engine) -> None:
    """What a session with ways of its own installs is as expected."""
    with engine.connect() as connection, connection.begin():
        for name, value in WAYS.items():
            connection.execute(text(f"SET LOCAL {name} = '{value}'"))
        assert describe(connection) == _packaged()[1]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("ALTER TABLE outbox.jobs DROP COLUMN progress", "missing: column jobs.progress"),
        ("ALTER TABLE outbox.jobs ADD COLUMN mine text", "unexpected: column jobs.mine"),
        (
            "ALTER TABLE outbox.jobs ALTER COLUMN uncharged_attempts TYPE bigint",
            "different: column jobs.uncharged_attempts: expected 'integer NOT NULL DEFAULT 0', "
            "found 'bigint NOT NULL DEFAULT 0'",
        ),
        (
            "ALTER TABLE outbox.jobs ALTER COLUMN tenant DROP NOT NULL",
            "different: column jobs.tenant: expected 'text NOT NULL', found 'text'",
        ),
        ('ALTER TABLE outbox.jobs ALTER COLUMN kind TYPE text COLLATE "C"', "different: column jobs.kind"),
        ("ALTER TABLE outbox.jobs DROP CONSTRAINT jobs_state", "missing: constraint jobs.jobs_state"),
        ("DROP INDEX outbox.outbox_owed", "missing: index outbox.outbox_owed"),
        ("CREATE INDEX mine ON outbox.jobs (state)", "unexpected: index jobs.mine"),
        (
            "ALTER TABLE outbox.jobs RESET (fillfactor)",
            "different: table jobs: expected 'table; with fillfactor",
        ),
        (
            "ALTER TABLE outbox.attempts SET UNLOGGED",
            "different: table attempts: expected 'table', found 'table; UNLOGGED'",
        ),
        ("DROP TABLE outbox.attempts", "missing: table attempts"),
        ("CREATE TABLE outbox.mine (id int PRIMARY KEY)", "unexpected: table mine"),
        (
            "CREATE FUNCTION outbox.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "unexpected: function mine()",
        ),
        (
            "CREATE OR REPLACE FUNCTION outbox.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now()'",
            "different: function clock()",
        ),
        (
            "CREATE TRIGGER mine BEFORE UPDATE ON outbox.jobs FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "unexpected: trigger jobs.mine",
        ),
        ("ALTER TABLE outbox.jobs ENABLE ROW LEVEL SECURITY", "different: table jobs"),
    ],
)
def test_each_kind_of_difference_is_one_line(installed: Connection, change: str, line: str) -> None:
    """Whatever was changed by hand is found and reported in exactly one line."""
    found = findings(installed, change)
    related = [item for item in found if item.startswith(line)]
    assert len(related) == 1
    assert all("\n" not in item and len(item) < 500 for item in found)
    # A dropped column takes its constraint along, which is worth a line of its own; nothing else may come up.
    assert len(found) == 1


def test_the_check_reads_only(engine: Engine) -> None:
    """USAGE and the right to read the version table are enough to check, in a read-only transaction."""
    role = f"migration_{uuid.uuid4().hex[:12]}"
    upgrade_database(engine)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        connection.execute(text("SAVEPOINT before"))
        with pytest.raises(MigrationError, match="grant it USAGE"):
            check_schema(connection)
        connection.execute(text("ROLLBACK TO before; RESET ROLE"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA outbox TO {role}"))
        connection.execute(text(f"GRANT SELECT ON outbox.outbox_schema_version TO {role}"))
        connection.execute(text(f"SET LOCAL ROLE {role}; SET TRANSACTION READ ONLY"))
        assert check_schema(connection).ok


def test_other_peoples_tables_in_public_are_no_difference(engine: Engine) -> None:
    """In the schema `public` only what hangs on our own tables can be unexpected."""
    upgrade_database(engine, "public")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE account (id int PRIMARY KEY)"))
        assert check_schema(connection, "public").ok
        assert not check_schema(connection, "public", shared=False).ok
        connection.execute(text("ALTER TABLE jobs ADD COLUMN mine text"))
        assert check_schema(connection, "public").lines() == ["unexpected: column jobs.mine"]


def test_several_versions_at_once_are_an_error(installed: Connection) -> None:
    """A version table with two rows is reported, never guessed about."""
    installed.execute(text("INSERT INTO outbox.outbox_schema_version VALUES ('0000')"))
    with pytest.raises(OutboxError, match="2 rows"):
        check_schema(installed)


def test_the_description_knows_the_schema_by_any_name(engine: Engine) -> None:
    """Definitions that hold the schema's name are compared under the name at hand."""
    name = 'O"x.ready'
    upgrade_database(engine, name)
    with engine.connect() as connection:
        assert compare(expected_schema(name), live_schema(connection, name)) == []
        assert compare(expected_schema("outbox"), live_schema(connection, name)) != []


def test_every_table_is_known_by_name() -> None:
    """The list that hides our tables from a host's autogenerate holds the version table too."""
    assert {"jobs", "outbox", "attempts", revisions.VERSION_TABLE} <= table_names()


def test_the_history_is_one_line() -> None:
    """The revisions have one head and no branches, so that every database is at one point of one line."""
    scripts = list(revisions.script_directory().walk_revisions())
    assert revisions.script_directory().get_heads() == [head()]
    assert [script.down_revision for script in scripts] == [
        *[script.revision for script in scripts][1:],
        None,
    ]
