"""What the root and its commands are told alike: whether to write JSON, and which file has the settings. Loads nothing
else, since the root does so for every command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["CONFIG_KEY", "is_json", "json_option"]

CONFIG_KEY = "outbox.config"
JSON_KEY = "outbox.json"

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json` to a command. The root has it too, so it may stand before or after the command's name."""

    def remember(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[JSON_KEY] = True

    option = click.option(
        "--json",
        is_flag=True,
        is_eager=True,  # before `--version`, wherever it stands
        expose_value=False,
        callback=remember,
        help="Write JSON for machines.",
    )
    return option(command)


def is_json() -> bool:
    """Tell whether the running command was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx is not None and ctx.meta.get(JSON_KEY))
