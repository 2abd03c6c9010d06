"""What the commands share: settings, a bounded database connection, and output as text or JSON.

@click.command()
@json_option
@pass_settings
def command(settings: Settings) -> None:
    with connect(settings) as connection:
        show({"answer": 42}, lambda: ["the answer is 42"])
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from unicodedata import east_asian_width
from uuid import UUID

import click
from pydantic import BaseModel

from outbox.cli.flags import CONFIG_KEY, is_json, json_option
from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.errors import SettingsError
from outbox.settings import Settings, load
from outbox.texts.masking import printable

__all__ = [
    "connect",
    "instant",
    "is_json",
    "json_option",
    "load_settings",
    "open_link",
    "pass_settings",
    "show",
    "table",
    "to_json",
    "to_json_line",
]

STATEMENT_TIMEOUT_S = 30
CELL_LIMIT = 60
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

P = ParamSpec("P")
R = TypeVar("R")


def load_settings(**overrides: Any) -> Settings:
    """Return the running command's settings: `--config`, the environment, then `overrides` (None is unset).

    Raises:
        SettingsError: as `outbox.settings.load`; the root turns it into exit code 2.
    """
    ctx = click.get_current_context(silent=True)
    config: Path | None = ctx.meta.get(CONFIG_KEY) if ctx is not None else None
    settings = load(config, **overrides)
    if settings.database_url is not None:
        _check_ssl_mode(settings.conninfo().get("sslmode"))
    return settings


def _check_ssl_mode(mode: str | None) -> None:
    """Refuse at the start what libpq refuses at each connection, where it looks like a server that is away."""
    if mode and mode not in SSL_MODES:
        raise SettingsError(f"the option sslmode in OUTBOX_DATABASE_URL must be one of {', '.join(SSL_MODES)}")


def pass_settings(command: Callable[Concatenate[Settings, P], R]) -> Callable[P, R]:
    """Give a command its settings as the first argument, loaded when it runs, so that `--help` needs none."""

    @functools.wraps(command)
    def with_settings(*args: P.args, **kwargs: P.kwargs) -> R:
        return command(load_settings(), *args, **kwargs)

    return with_settings


@contextmanager
def connect(
    settings: Settings,
    *,
    application_name: str = "outbox-cli",
    statement_timeout_s: float = STATEMENT_TIMEOUT_S,
) -> Iterator[Link]:
    """Yield a link inside one transaction, committed at the end and rolled back on an error.

    Each statement is bounded by `statement_timeout_s` in a way that ends with the transaction: a limit set
    for the session would stay behind in a transaction pooler for whoever comes next, and one given at
    start-up is refused by some.

    Raises:
        SettingsError: no database is named.
        psycopg.OperationalError: it can't be reached.
    """
    with open_link(settings, application_name=application_name) as link, link.transaction():
        link.run("limit_statements", milliseconds=int(statement_timeout_s * 1000))
        yield link


@contextmanager
def open_link(settings: Settings, *, application_name: str = "outbox-cli") -> Iterator[Link]:
    """Yield a link for functions that make many transactions of their own and bound the statements in each.

    Raises as `connect`.
    """
    url = settings.database_url.get_secret_value() if settings.database_url is not None else ""
    link = Link(url, statements_for(settings.schema_name), name=application_name, pooled=True)
    try:
        yield link
    finally:
        link.close()


def show(data: object, text: Callable[[], Iterable[str]]) -> None:
    """Write `data` as JSON if asked for, else the lines of `text`. The lines must be printable already."""
    if is_json():
        click.echo(to_json(data))
    else:
        for line in text():
            click.echo(line)


def to_json(data: object) -> str:
    """Return indented ASCII JSON: keys as they come, instants in ISO 8601 UTC, spans of time in seconds."""
    return json.dumps(data, indent=2, default=_plain, allow_nan=False)


def to_json_line(data: object) -> str:
    """Return the same on one line, for output of which each line is a document."""
    return json.dumps(data, default=_plain, allow_nan=False)


def instant(value: datetime | None) -> str:
    """Return an instant in UTC to the second, or `-`."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value is not None else "-"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a plain table's lines. Cells are made printable and cut; None is `-`, numbers stand right."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(isinstance(value, int | float) for value in column) for column in zip(*rows, strict=True)]
    widths = [max(map(_width, column)) for column in zip(headers, *cells, strict=True)]
    right = numeric or [False] * len(headers)
    return [
        "  ".join(_pad(cell, width, right=side) for cell, width, side in zip(line, widths, right, strict=True)).rstrip()
        for line in [list(headers), *cells]
    ]


def _plain(value: object) -> object:
    """Return what `json` can write for a value that it doesn't know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind):
            return convert(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_CONVERSIONS: tuple[tuple[type[Any], Callable[[Any], object]], ...] = (
    (BaseModel, BaseModel.model_dump),
    (datetime, lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z")),
    (timedelta, timedelta.total_seconds),
    (Enum, lambda value: value.value),
    (Mapping, dict),
    (UUID, str),
    (Path, str),
)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return instant(value)
    return printable(str(value), CELL_LIMIT) or "-"


def _width(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space
