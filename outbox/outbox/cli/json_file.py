"""JSON that a command takes from a file: an argument would be visible to every user of the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

import click

__all__ = ["json_file_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_file_option(
    flag: str, name: str, *, most: int, needs: str, about: str, default: Any = None, kind: type = object
) -> Callable[[_Command], _Command]:
    """Return the option `flag`, whose parameter `name` is the JSON of a file, or of stdin.

    Args:
        most: so many characters are read; more is no JSON.
        needs: what the file has to hold, for who gives another one.
        about: the help, but for what - means.
        default: the parameter without the option.
        kind: what the JSON has to be in Python.
    """

    def read(_ctx: click.Context, _parameter: click.Parameter, value: TextIO | None) -> Any:
        if value is None:
            return default
        try:
            with value:
                found = json.loads(value.read(most))
        except (ValueError, RecursionError):
            raise click.BadParameter(needs) from None
        if not isinstance(found, kind):
            raise click.BadParameter(needs)
        return found

    return click.option(
        flag,
        name,
        type=click.File("r", encoding="utf-8"),
        callback=read,
        metavar="FILE",
        help=f"{about} - reads stdin.",
    )
