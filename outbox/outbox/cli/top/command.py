"""`outbox top`."""

from __future__ import annotations

import os
import sys

import click

from outbox.cli.amounts import Amount
from outbox.cli.output import connect, is_json, json_option, pass_settings, show
from outbox.cli.top.reading import read_picture
from outbox.cli.top.screen import report
from outbox.settings import Settings
from outbox.texts.masking import masked_line

__all__ = ["top"]


@click.command()
@click.option("--once", is_flag=True, help="Write it once as text and end; as where there is no terminal.")
@click.option("--every", type=Amount(0.5, 60), default=2.0, show_default=True, metavar="SECONDS", help="When to look.")
@json_option
@pass_settings
def top(settings: Settings, *, once: bool, every: float) -> None:
    """Show queues, running jobs, workers, dead letters and effects on hold, live, and act on them by keys.

    Enter opens a queue or tells a job's life, e explains a job, p and r pause and resume a queue (they ask who and
    why), q goes back and quits. With --json, --once or without a terminal it is written once.
    """
    if once or is_json() or not _is_terminal():
        with connect(settings) as link:
            picture = read_picture(link)
        show(picture, lambda: report(picture))
        return
    # Only here: a machine without a terminal may have no curses either.
    from outbox.cli.top.terminal import show_screen  # noqa: PLC0415
    from outbox.cli.top.work import Worker  # noqa: PLC0415

    settings.conninfo()  # refuses a missing address before the screen is taken
    show_screen(Worker(settings, every))


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and _is_known()


def _is_known() -> bool:
    """Tell whether this machine knows the kind of terminal, and say so if it doesn't: a container may know few."""
    try:
        import curses  # noqa: PLC0415 - as above
    except ImportError:
        return False
    try:
        curses.setupterm()
    except curses.error:
        name = masked_line(os.environ.get("TERM", ""))
        click.echo(f"this machine knows no terminal {name}; TERM=xterm mostly does, and shows it live", err=True)
        return False
    return True
