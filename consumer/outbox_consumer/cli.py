"""`outbox consume`: a consumer as a command."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click

from outbox.cli.amounts import Whole
from outbox.cli.output import is_json, json_option, load_settings
from outbox.logs import configure
from outbox.processes.collecting import set_start_aside
from outbox_consumer.process import make_consumer, serve

__all__ = ["consume"]


@click.command()
@click.argument("handlers", nargs=-1, required=True, metavar="MODULE[:NAME]...")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=N]",
    help="Work for this queue, with N slots of its own; may be repeated.",
)
@click.option("--concurrency", type=Whole(), metavar="N", help="Handlers that run at once, for queues without N.")
@json_option
def consume(handlers: tuple[str, ...], queues: tuple[str, ...], concurrency: int | None) -> int:
    """Run the handlers defined in MODULE, or the one called NAME, until SIGTERM or Ctrl-C.

    Works for the queues of its payload types unless told otherwise. Without OUTBOX_AMQP_URL, or while the broker is
    away, it takes jobs straight from PostgreSQL. The first signal hands back what has not started and waits for the
    rest, up to `consumer.grace_s`; the second lets go. With --json, its log is JSON lines.
    """
    settings = load_settings(
        log_format="json" if is_json() else None,
        consumer={"queues": queues or None, "concurrency": concurrency},
    )
    configure(settings)
    consumer = make_consumer(handlers, settings)
    set_start_aside()
    code = serve(consumer)
    if code:
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End the process although work was let go: a thread that a handler has started would keep it alive."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
