"""`outbox db`: create or upgrade the tables, compare them with what is expected, print their DDL."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from sqlalchemy import func, select

from outbox.cli.amounts import Amount
from outbox.cli.failures import FAILED
from outbox.cli.groups import Group
from outbox.cli.output import is_json, json_option, load_settings, show
from outbox.migrations import MigrationError, SchemaCheck, Upgrade, check_schema, head, sql_script, upgrade_database
from outbox.migrations.revisions import pending
from outbox.migrations.upgrading import ENGINE_OPTIONS
from outbox.texts.masking import printable

LINE_LIMIT = 500
APPLICATION = "outbox-db"
STATEMENT_TIMEOUT = "30s"

F = TypeVar("F", bound=Callable[..., Any])


def _schema_option(command: F) -> F:
    option = click.option("--schema", "schema_name", metavar="NAME", help="The schema; wins over settings.")
    return option(command)


def _known(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the revision's number; refuse one that this release doesn't know before a server is asked."""
    if value is not None:
        try:
            pending(None, value)
        except MigrationError as error:
            raise click.BadParameter(str(error)) from error
    return head() if value == "head" else value


@click.group(cls=Group)
@json_option
def db() -> None:
    """Create, upgrade and compare the tables."""


@db.command()
@_schema_option
@click.option("--revision", default="head", show_default=True, callback=_known, help="How far to go; never back.")
@click.option(
    "--wait",
    "wait_s",
    type=Amount(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try for the locks of each transaction.",
)
@click.option(
    "--lock-timeout",
    "lock_timeout_s",
    type=Amount(0.01, 600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one try may wait for a lock, and so hold up others.",
)
@json_option
def upgrade(schema_name: str | None, revision: str, wait_s: float, lock_timeout_s: float) -> None:
    """Create the tables, or bring them up to date, in one transaction for each revision.

    Any number may run at once. A run that was killed can be started again, and goes on where it stood.
    """
    settings = load_settings(schema_name=schema_name)
    engine = settings.engine(APPLICATION, **ENGINE_OPTIONS)
    try:
        done = upgrade_database(
            engine,
            settings.schema_name,
            revision=revision,
            wait_s=wait_s,
            lock_timeout_s=lock_timeout_s,
            on_wait=_tell,
        )
    finally:
        engine.dispose()
    show(done, lambda: _upgrade_lines(done))


@db.command()
@_schema_option
@json_option
@click.pass_context
def check(ctx: click.Context, schema_name: str | None) -> None:
    """Compare the live tables with the expected ones; changes nothing.

    Exit code 0: as expected. 1: one line for each difference, or for each pending migration.
    """
    settings = load_settings(schema_name=schema_name)
    engine = settings.engine(APPLICATION, **ENGINE_OPTIONS)
    try:
        with engine.connect().execution_options(postgresql_readonly=True) as connection:
            connection.execute(select(func.set_config("statement_timeout", STATEMENT_TIMEOUT, True)))
            found = check_schema(connection, settings.schema_name)
    finally:
        engine.dispose()
    show(_check_data(found), lambda: [printable(line, LINE_LIMIT) for line in found.lines()])
    if not found.ok:
        ctx.exit(FAILED)


@db.command()
@_schema_option
@click.option("--revision", default="head", show_default=True, callback=_known, help="The revision to reach.")
@click.option(
    "--since", metavar="REVISION", callback=_known, help="The revision that the database is at. [default: nothing]"
)
@json_option
def sql(schema_name: str | None, revision: str, since: str | None) -> None:
    """Print the DDL as a script for psql; needs no database."""
    name = load_settings(schema_name=schema_name).schema_name
    script = sql_script(name, revision=revision, since=since)
    if is_json():
        show({"schema": name, "sql": script}, list)
    else:
        # As bytes: it has to run as it stands, whatever the terminal can show.
        click.echo(script.encode("utf-8"), nl=False)


def _tell(reason: str) -> None:
    if not is_json():
        click.echo(reason, err=True)


def _upgrade_lines(done: Upgrade) -> list[str]:
    name = printable(done.schema, LINE_LIMIT)
    if not done.applied:
        return [f"schema {name}: nothing to do, at revision {done.after}"]
    before = "nothing" if done.before is None else f"revision {done.before}"
    return [f"schema {name}: from {before} to revision {done.after} (applied {', '.join(done.applied)})"]


def _check_data(found: SchemaCheck) -> dict[str, object]:
    return {
        "schema": found.schema,
        "ok": found.ok,
        "revision": found.revision,
        "expected": found.expected,
        "pending": found.pending,
        "too_new": found.too_new,
        "differences": found.differences,
    }
