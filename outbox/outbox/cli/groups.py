"""Groups of commands, whose help tells each command's whole sentence."""

from __future__ import annotations

import click

__all__ = ["Group"]

_UNCUT = 1_000


class Group(click.Group):
    """A group that wraps the sentences about its commands. click's own cuts them at the edge of the line."""

    group_class = type  # groups within it are the same

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command's name and its first sentence."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_UNCUT)) for name, one in found if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
