"""Groups of commands, whose help tells each command's whole sentence."""

from __future__ import annotations

import click

__all__ = ["Group"]

_UNCUT = 1_000


class Group(click.Group):
    """A group that wraps the sentences about its commands. click's own cuts them at the edge of the line."""

    group_class = type  # groups within it are the same

    def sentence_of(self, ctx: click.Context, name: str) -> str | None:
        """Return a command's first sentence; None: it is not to be listed."""
        found = self.get_command(ctx, name)
        return None if found is None or found.hidden else found.get_short_help_str(_UNCUT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command's name and its first sentence."""
        found = [(name, self.sentence_of(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, sentence) for name, sentence in found if sentence is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
