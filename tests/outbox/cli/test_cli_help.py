"""The help of every group of commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from outbox.cli.root import cli


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each group, from the root on."""
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from groups(found, (*path, name))


@pytest.mark.parametrize("path", list(groups(cli)), ids=lambda path: " ".join(path) or "outbox")
def test_help_tells_whole_sentences(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """No command's sentence is cut, however narrow the line."""
    cli.main([*path, "--help"], standalone_mode=False, terminal_width=60)
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
