"""The DDL as text does the same as the upgrade, whoever runs it."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, make_url

from outbox.migrations import (
    MigrationError,
    check_schema,
    current_revision,
    head,
    live_schema,
    sql_script,
    upgrade_database,
)

from .conftest import NEXT

NAMES = ["outbox", "public", 'weird "name" %s $function$ :x é', "a\nDROP TABLE jobs;--"]


_NAMES = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "DATABASE"}


def run_with_psql(url: str, script: str, path: Path) -> None:
    """Run a script as a person would, or without psql on the machine as one simple query."""
    path.write_text(script, encoding="utf-8")
    psql = shutil.which("psql")
    if psql is None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(path.read_bytes())
        return
    command = [psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-q", "-f", str(path)]
    # By the environment: whoever may list processes sees their arguments.
    address = {f"PG{_NAMES[word]}": str(value) for word, value in conninfo_to_dict(url).items() if word in _NAMES}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | address | {"PGCLIENTENCODING": "UTF8"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_script_does_what_the_upgrade_does(engine: Engine, empty_database: str, tmp_path: Path, name: str) -> None:
    """The result of the script is that of the command, and an upgrade finds nothing to do."""
    run_with_psql(empty_database, sql_script(name), tmp_path / "script.sql")
    with engine.connect() as connection:
        assert check_schema(connection, name).lines() == [f"as expected at revision {head()}"]
        assert current_revision(connection, name) == head()
    assert upgrade_database(engine, name).applied == ()


def test_a_second_run_fails_and_changes_nothing(engine: Engine, empty_database: str, tmp_path: Path) -> None:
    """The script is one transaction: on a database that has the tables it fails as a whole."""
    run_with_psql(empty_database, sql_script(), tmp_path / "script.sql")
    with engine.connect() as connection:
        before = live_schema(connection)
    with pytest.raises(Exception, match="already exists"):
        run_with_psql(empty_database, sql_script(), tmp_path / "script.sql")
    with engine.connect() as connection:
        assert live_schema(connection) == before


def test_a_script_can_start_from_a_revision(
    engine: Engine, empty_database: str, tmp_path: Path, next_migration: Callable[[str], Path]
) -> None:
    """A later script does only what is missing, and refuses a database that isn't where it starts."""
    first = head()
    next_migration("ALTER TABLE {schema}.jobs ADD COLUMN extra text;")
    with pytest.raises(Exception, match="outbox"):
        run_with_psql(empty_database, sql_script(since=first), tmp_path / "early.sql")
    run_with_psql(empty_database, sql_script(revision=first), tmp_path / "first.sql")
    run_with_psql(empty_database, sql_script(since=first), tmp_path / "second.sql")
    with engine.connect() as connection:
        assert current_revision(connection) == NEXT
        assert "column jobs.extra" in live_schema(connection)
    with pytest.raises(Exception, match=r"already exists|not at revision"):
        run_with_psql(empty_database, sql_script(since=first), tmp_path / "second.sql")


def test_unknown_revisions_are_refused() -> None:
    """A script to a revision that doesn't exist is an error, not an empty script."""
    with pytest.raises(MigrationError, match="no revision"):
        sql_script(revision="0815")


def test_the_script_never_holds_a_secret(empty_database: str) -> None:
    """The script is made without any address, so none can be in it."""
    assert (make_url(empty_database).database or "-") not in sql_script()
