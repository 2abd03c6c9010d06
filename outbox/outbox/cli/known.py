"""The commands of this distribution as the root's help tells of them, so that they need not be loaded for it.

A test compares this with the commands themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["KNOWN", "known_help"]


class Known(NamedTuple):
    """A command: what its entry point names, its first sentence, and the module of an extra that it can't load
    without.
    """

    value: str
    help: str
    needs: str | None = None


KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        "consume": Known(
            "outbox_consumer.cli:consume",
            "Run the handlers defined in MODULE, or the one called NAME, until SIGTERM or Ctrl-C.",
        ),
        "consumers": Known(
            "outbox.cli.consumers:consumers",
            "Show the consumers and relays that were seen within the last minute, and what each runs.",
        ),
        "db": Known("outbox.cli.db:db", "Create, upgrade and compare the tables."),
        "dead": Known(
            "outbox.cli.dead_commands:dead",
            "Look at the failed jobs that wait for a person, close them, or put them back to work.",
        ),
        "demo": Known(
            "outbox.cli.demo:demo",
            "Run the worked example with real servers, kill and pause things, and check that nothing is lost.",
        ),
        "doctor": Known("outbox.cli.doctor:doctor", "Check the data, and what moves it."),
        "effects": Known(
            "outbox.cli.effects:effects",
            "List external effects whose outcome is unknown, show a job's, settle one.",
        ),
        "jobs": Known("outbox.cli.jobs:jobs", "List jobs, follow them, show one, explain why one waits, cancel one."),
        "keys": Known("outbox.cli.keys:keys", "Sealed jobs: count them by key, put them under new keys, open one."),
        "purge": Known(
            "outbox.cli.purge:purge",
            "Erase ended jobs, or their payloads, whose time is over: by the settings' [retention], or by "
            "--older-than.",
        ),
        "queues": Known(
            "outbox.cli.queues:queues",
            "Show every queue that has live jobs, and how long the oldest due one has waited; pause, resume, and "
            "limit.",
        ),
        "relay": Known(
            "outbox_relay.cli:relay",
            "Move due hints from PostgreSQL to RabbitMQ, and keep time, until SIGTERM or Ctrl-C.",
            needs="pika",
        ),
        "schedules": Known(
            "outbox.cli.schedules_commands:schedules",
            "List recurring schedules, show what comes, add, change, pause, run and remove them, or sync them from "
            "code.",
        ),
        "top": Known(
            "outbox.cli.top.command:top",
            "Show queues, running jobs, workers, dead letters and effects on hold, live, and act on them by keys.",
        ),
    }
)


def known_help(point: EntryPoint) -> str | None:
    """Return the first sentence of a command; None where it has to be loaded to be known: another distribution's, or
    one whose extra is missing.
    """
    known = KNOWN.get(point.name)
    if known is None or known.value != point.value:
        return None
    return known.help if known.needs is None or find_spec(known.needs) is not None else None
