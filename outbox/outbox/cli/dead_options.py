"""What the commands about dead letters share: their options, and a bounded transaction that changes something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import click
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from outbox.cli.amounts import quoted
from outbox.cli.output import STATEMENT_TIMEOUT_S
from outbox.database.statements import statements_for
from outbox.processes.barriers import Barrier, hit
from outbox.settings import Settings

__all__ = ["age", "by_option", "changing", "filter_options", "module_option", "reason_option"]

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

by_option = click.option("--by", required=True, metavar="WHO", help="Who asks; recorded in the audit.")
reason_option = click.option("--reason", required=True, metavar="WHY", help="Why; recorded likewise.")

module_option = click.option(
    "--module", "modules", multiple=True, metavar="MODULE", help="Where payload classes are; may be repeated."
)


def age(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Return a span of time such as 90s, 30m, 12h, 7d or 2w."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or len(number) > 6:
        raise click.BadParameter(
            f"{quoted(value)} is no span of time; give a whole number and a unit: 90s, 30m, 12h, 7d or 2w"
        )
    return timedelta(**{_UNITS[unit]: int(number)})


def filter_options(command: F) -> F:
    """Add the options that choose dead letters; `dead_filter` makes a filter of their values."""
    for option in reversed(
        (
            click.option("--kind", metavar="NAME", help="Only jobs of this kind."),
            click.option("--code", metavar="CODE", help="Only those that failed with this error code."),
            click.option("--queue", metavar="NAME", help="Only jobs of this queue."),
            click.option("--tenant", metavar="NAME", help="Only jobs of this tenant."),
            click.option(
                "--older-than", callback=age, metavar="SPAN", help="Only those that failed so long ago: 12h, 7d."
            ),
        )
    ):
        command = option(command)
    return command


@contextmanager
def changing(settings: Settings, *, statement_timeout_s: float = STATEMENT_TIMEOUT_S) -> Iterator[sa.Connection]:
    """Yield a connection in a transaction, committed at the end, in which each statement is bounded."""
    engine = settings.engine("outbox-cli", poolclass=NullPool)
    with engine.begin() as connection:
        limit = {"milliseconds": int(statement_timeout_s * 1000)}
        statements_for(settings.schema_name).run_within(connection, "limit_statements", limit)
        yield connection
        hit(Barrier.OPERATOR_BEFORE_COMMIT)
    hit(Barrier.OPERATOR_AFTER_COMMIT)
