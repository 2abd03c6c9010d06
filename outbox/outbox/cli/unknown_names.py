"""What commands that set something say of names that nobody knows: a warning, for rows may come before their jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import sqlalchemy as sa

from outbox.cli.output import show
from outbox.database.statements import statements_for
from outbox.reading.known_names import NameOf, UnknownName, unknown_name
from outbox.settings import Settings

__all__ = ["show_done", "unknown_names", "warn"]


def unknown_names(connection: sa.Connection, settings: Settings, **names: str | None) -> list[UnknownName]:
    """Return those of the names (`queue=`, `kind=`, `tenant=`; None: not given) of which nothing is known. Ask before
    anything is written of them.
    """
    statements = statements_for(settings.schema_name)

    def read(name: str, parameters: dict[str, Any]) -> Sequence[Any]:
        return statements.run_within(connection, name, parameters)

    found = [unknown_name(read, NameOf(what), name) for what, name in names.items() if name is not None]
    return [one for one in found if one is not None]


def warn(unknown: Iterable[UnknownName]) -> None:
    """Write a warning of each to stderr."""
    for one in unknown:
        click.echo(f"warning: {one}", err=True)


def show_done(done: Any, unknown: Sequence[UnknownName], text: Callable[[], Iterable[str]]) -> None:
    """Write what was done, as `show` does, with `unknown_names` beside its fields, and the warnings to stderr."""
    warn(unknown)
    data = {field.name: getattr(done, field.name) for field in dataclasses.fields(done)}
    show(data | {"unknown_names": unknown}, text)
