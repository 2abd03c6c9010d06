"""What holds for all commands: their help, and that whoever changes something says who and why."""

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


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that is no group, by its whole name."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


# They work, or look and change nothing.
LOOKS = {"list", "show", "preview", "explain", "tail", "check", "top", "consumers"}
WORKS = {"relay", "consume", "demo", "db sql", "db upgrade"}
# They look unless they are told to act, and then ask, too.
BOTH = {"doctor", "jobs cancel", "purge"}


def test_every_command_that_changes_something_asks_who_and_why() -> None:
    """Whatever is neither a look nor a process: a command that comes anew belongs to one of these, or asks."""
    asks = {
        name: [option.required for option in command.params if option.name in {"by", "reason"}]
        for name, command in commands(cli)
    }
    for name, required in asks.items():
        if name in WORKS or name.split()[-1] in LOOKS:
            assert required == [], name
        else:
            assert required == [name not in BOTH] * 2, name
    assert len(asks) > 40


@pytest.mark.parametrize("path", list(groups(cli)), ids=lambda path: " ".join(path) or "outbox")
def test_help_tells_whole_sentences(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """No command's sentence is cut, however narrow the line."""
    cli.main([*path, "--help"], standalone_mode=False, terminal_width=60)
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
