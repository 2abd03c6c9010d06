"""`outbox queues set`, `set-tenant`, `unset` and `unset-tenant`, and the lines in which limits are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from outbox.cli.amounts import Amount, Whole
from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.output import json_option, pass_settings, table
from outbox.cli.unknown_names import show_done, unknown_names
from outbox.limits.setting import clear_queue, clear_tenant, set_queue, set_tenant
from outbox.limits.terms import KEEP, MOST, SLOWEST, Keep, QueueLimits, TenantLimits
from outbox.reading.known_names import UnknownName
from outbox.reading.runways import RunwaySource, RunwayView
from outbox.settings import Settings
from outbox.texts.masking import printable

__all__ = ["limit_lines", "runway_cell", "set_command", "set_tenant_command", "unset_command", "unset_tenant_command"]

F = TypeVar("F", bound=Callable[..., Any])


class _OrNone(click.ParamType[Any]):
    """A value within its bounds, or "none"."""

    name = "value"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, None for "none", and what was not given as it is."""
        if value is None or isinstance(value, Keep):
            return value
        return "none" if value == "none" else self._kind.convert(value, param, ctx)


def _number(name: str, about: str, least: int = 1) -> Callable[[F], F]:
    kind = _OrNone(Whole(least, MOST))
    return click.option(f"--{name}", type=kind, metavar="N|none", help=about)


def _rate(name: str, about: str) -> Callable[[F], F]:
    return click.option(f"--{name}", type=_OrNone(Amount(SLOWEST, MOST)), metavar="PER_S|none", help=about)


def _who(command: F) -> F:
    for part in reversed((by_option, reason_option, json_option)):
        command = part(command)
    return command


def _terms(given: dict[str, Any]) -> dict[str, Any]:
    """Return the terms as the functions take them. Something must be given."""
    if all(value is None for value in given.values()):
        raise click.UsageError("give at least one limit; `none` takes one away")
    return {name: KEEP if value is None else None if value == "none" else value for name, value in given.items()}


@click.command("set")
@click.argument("name")
@_number("max-running", "The most jobs that run at the same time; 0: nothing starts.", 0)
@_number("tenant-max-running", "The same for each tenant that has no limit of its own.")
@_rate("rate", "So many start in a second, on average.")
@_number("burst", "So many start at once after a quiet time; 1 if a rate is set without it.")
@_rate("tenant-rate", "The same for each tenant that has no rate of its own.")
@_number("tenant-burst", "So many of a tenant start at once.")
@_number("runway", "The most hints that are out and unclaimed; none: what each relay's setting says.")
@_who
@pass_settings
def set_command(settings: Settings, /, *, name: str, by: str, reason: str, **given: Any) -> None:
    """Limit how many jobs of a queue run at the same time, how many start in a second, and how many are on their way.

    What is not given stays as it is. It holds within two seconds, for hints on their way, too; what runs goes on.
    """
    given["rate_per_s"], given["tenant_rate_per_s"] = given.pop("rate"), given.pop("tenant_rate")
    terms = _terms(given)
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name)
        done = set_queue(connection, name, by=by, reason=reason, schema=settings.schema_name, **terms)
    _say(done, unknown)


@click.command("set-tenant")
@click.argument("name")
@click.argument("tenant")
@_number("max-running", "The most jobs of the tenant in this queue that run at the same time; 0: nothing starts.", 0)
@_rate("rate", "So many start in a second, on average.")
@_number("burst", "So many start at once after a quiet time; 1 if a rate is set without it.")
@click.option("--weight", type=Whole(1, MOST), metavar="N", help="Its share beside others'; 1 unless set.")
@_who
@pass_settings
def set_tenant_command(settings: Settings, /, *, name: str, tenant: str, by: str, reason: str, **given: Any) -> None:
    """Give a tenant limits of its own in a queue, instead of what the queue gives to each.

    What is not given stays as it is; the queue's own limits hold besides.
    """
    given["rate_per_s"] = given.pop("rate")
    terms = _terms(given)
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, tenant=tenant)
        done = set_tenant(connection, name, tenant, by=by, reason=reason, schema=settings.schema_name, **terms)
    _say(done, unknown)


@click.command("unset")
@click.argument("name")
@_who
@pass_settings
def unset_command(settings: Settings, *, name: str, by: str, reason: str) -> None:
    """Take all limits of a queue away; those of single tenants stay."""
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name)
        done = clear_queue(connection, name, by=by, reason=reason, schema=settings.schema_name)
    _say(done, unknown)


@click.command("unset-tenant")
@click.argument("name")
@click.argument("tenant")
@_who
@pass_settings
def unset_tenant_command(settings: Settings, *, name: str, tenant: str, by: str, reason: str) -> None:
    """Take a tenant's own limits and weight in a queue away: it has what the queue gives to each."""
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, tenant=tenant)
        done = clear_tenant(connection, name, tenant, by=by, reason=reason, schema=settings.schema_name)
    _say(done, unknown)


def limit_lines(found: Sequence[QueueLimits | TenantLimits]) -> list[str]:
    """Return the lines of a table of limits, with an empty one above; none if there are none."""
    if not found:
        return []
    headers = [
        "LIMITS OF",
        "TENANT",
        "RUNNING",
        "RATE",
        "BURST",
        "EACH TENANT'S",
        "ITS RATE",
        "ITS BURST",
        "RUNWAY",
        "WEIGHT",
    ]
    return ["", *table(headers, [_cells(one) for one in found])]


def runway_cell(of_queue: Sequence[RunwayView]) -> str | None:
    """Return how long a queue's runway is at the relays that have told, and at most, by their word or its row's."""
    told = sorted({one.hints for one in of_queue if one.hints is not None})
    own = next((one.most for one in of_queue if one.relay is None), None)
    # A relay that has told before the row was set, or taken away, means its setting.
    most = [own] if own is not None else sorted({one.most for one in of_queue if one.source is RunwaySource.SETTING})
    if not told and not most:
        return None
    cell = f"{_from_to(told) or '?'} of {_from_to(most) or '?'}"
    return cell if own is None else f"{cell}, set"


def _from_to(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest: relays differ."""
    return "-".join(str(number) for number in dict.fromkeys((*numbers[:1], *numbers[-1:])))


def _cells(one: QueueLimits | TenantLimits) -> list[object]:
    cells = [one.max_running, _per_s(one.rate_per_s), one.burst]
    if isinstance(one, TenantLimits):
        return [one.queue, one.tenant, *cells, None, None, None, None, one.weight]
    each = [one.tenant_max_running, _per_s(one.tenant_rate_per_s), one.tenant_burst]
    return [one.queue, None, *cells, *each, one.runway, None]


def _say(done: QueueLimits | TenantLimits, unknown: Sequence[UnknownName]) -> None:
    whose = f"queue {done.queue}" if isinstance(done, QueueLimits) else f"tenant {done.tenant} in queue {done.queue}"
    show_done(done, unknown, lambda: [printable(f"{whose}: {_words(done)}", 1000)])


def _words(done: QueueLimits | TenantLimits) -> str:
    parts = _of_each(done.max_running, done.rate_per_s, done.burst)
    if isinstance(done, TenantLimits):
        parts += [f"weight {done.weight}"] if done.weight != 1 else []
        return "; ".join(parts) or "no limits of its own"
    each = _of_each(done.tenant_max_running, done.tenant_rate_per_s, done.tenant_burst)
    parts += [f"of each tenant {part}" for part in each]
    if done.runway is not None:
        parts.append(f"a runway of {done.runway} hints at most")
    return "; ".join(parts) or "no limits"


def _of_each(running: int | None, rate: float | None, burst: int | None) -> list[str]:
    parts = [] if running is None else [f"at most {running} running" if running else "none may run"]
    return parts if rate is None else [*parts, f"at most {_per_s(rate)} start, {burst} at once"]


def _per_s(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:g}/s"
