"""`outbox schedules list | show | preview`: what is planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click
import sqlalchemy as sa

from outbox.cli.amounts import Whole
from outbox.cli.dead_options import changing
from outbox.cli.groups import Group
from outbox.cli.output import instant, json_option, pass_settings, show, table
from outbox.cli.schedules_options import bounds_of, instant_option, rule_options
from outbox.database.statements import statements_for
from outbox.schedules.looking import (
    MOST_PREVIEWED,
    ended_by,
    get_schedule,
    list_schedules,
    occurrences_of,
    preview_schedule,
)
from outbox.schedules.views import STATES, ScheduleView
from outbox.schedules.zones import wall_text
from outbox.settings import Settings
from outbox.texts.masking import printable
from outbox_schemas import ScheduleRefused

__all__ = ["ended_among", "ended_lines", "idle_lines", "schedules"]

_LINE = 500
_SHOWN = 5
# States in which a rule goes on and no job comes of it.
_IDLE = ("paused", "disabled", "broken")


@click.group(cls=Group)
@json_option
def schedules() -> None:
    """List recurring schedules, show what comes, add, change, pause, run and remove them, or sync them from code."""


@schedules.command("list")
@click.option("--source", metavar="NAME", help="Only those that it declares; `operator`: that people have added.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only those; may be repeated.")
@json_option
@pass_settings
def list_command(settings: Settings, source: str | None, states: tuple[str, ...]) -> None:
    """List all schedules by name, with their states and what comes next."""
    with changing(settings) as connection:
        found = list_schedules(connection, source=source, schema=settings.schema_name)
    found = [one for one in found if not states or one.state in states]
    headers = ["NAME", "STATE", "RULE", "ZONE", "KIND", "NEXT", "LAST", "MADE", "MISSED", "SOURCE"]
    rows = [
        [one.name, one.state, one.rule, one.time_zone, one.kind, _comes(one), one.last_at, one.made, one.passed_over,
         one.source]
        for one in found
    ]  # fmt: skip
    show({"schedules": found}, lambda: table(headers, rows))


@schedules.command("show")
@click.argument("name")
@json_option
@pass_settings
def show_command(settings: Settings, name: str) -> None:
    """Show one schedule and the next times that it comes. Exit code 1: there is none of this name."""
    with changing(settings) as connection:
        found = get_schedule(connection, name, schema=settings.schema_name)
        (clock,) = statements_for(settings.schema_name).run_within(connection, "read_clock", {})
    coming: list[datetime] = []
    problem: str | None = None
    try:
        coming = occurrences_of(found, clock.now, _SHOWN)
    except ScheduleRefused as error:
        problem = str(error)
    show(dataclasses.asdict(found) | {"upcoming": coming}, lambda: _lines(found, coming, problem))


@schedules.command("preview")
@click.argument("name", required=False)
@rule_options
@click.option("-n", "count", type=Whole(1, MOST_PREVIEWED), default=10, show_default=True, help="So many.")
@instant_option("--after", "From here on; now unless given.")
@json_option
@pass_settings
def preview_command(
    settings: Settings, /, *, name: str | None, count: int, after: datetime | None, **rule: Any
) -> None:
    """Show the next times of a schedule, or of a rule that is none yet (--cron, --every), as relays find them.

    A rule is previewed without any database.
    """
    if (name is None) == (rule["cron"] is None and rule["every"] is None):
        raise click.UsageError("give the NAME of a schedule, or a rule: --cron or --every")
    if name is not None and any(value is not None for value in rule.values()):
        raise click.UsageError("--zone, --starts and --ends belong to a rule; a schedule of a NAME has its own")
    zone = "UTC" if rule["time_zone"] is None else rule["time_zone"]
    if name is None:
        terms = bounds_of(rule) | {"time_zone": zone}
        found = preview_schedule(after=after or datetime.now(UTC), n=count, **terms)
    else:
        with changing(settings) as connection:
            view = get_schedule(connection, name, schema=settings.schema_name)
            (clock,) = statements_for(settings.schema_name).run_within(connection, "read_clock", {})
        zone = view.time_zone
        found = occurrences_of(view, after or clock.now, count)
    idle = name is not None and view.state in _IDLE
    show({"time_zone": zone, "upcoming": found}, lambda: _times(found, zone, view.state if idle else None))


def ended_among(connection: sa.Connection, settings: Settings, names: Collection[str]) -> list[str]:
    """Return those of these schedules of which nothing comes any more, by the database's clock."""
    found = list_schedules(connection, schema=settings.schema_name)
    (clock,) = statements_for(settings.schema_name).run_within(connection, "read_clock", {})
    return ended_by([one for one in found if one.name in names], clock.now)


def ended_lines(names: Iterable[str]) -> Iterator[str]:
    """Yield a warning of each schedule of which nothing comes any more."""
    for name in names:
        yield f"warning: nothing comes of {name} any more: no occurrence is left before its end"


def idle_lines(one: ScheduleView) -> Iterator[str]:
    """Yield a warning of a schedule of which nothing comes though it isn't paused, or not only for that."""
    if one.disabled_at is not None:
        text = f"{one.source} does not declare it any more; declare it there again, and sync"
        yield printable(f"warning: {one.name} is disabled, so nothing comes of it: {text}", _LINE)
    elif one.broken_at is not None:
        yield printable(f"warning: {one.name} is broken, so nothing comes of it: {one.last_error}", _LINE)


def _comes(one: ScheduleView) -> datetime | None:
    """Return the next occurrence of a schedule that makes jobs now."""
    return None if one.state in _IDLE else one.next_at


def _times(found: list[datetime], zone: str, idle: str | None = None) -> Iterator[str]:
    if not found:
        yield "nothing comes any more"
    elif idle is not None:
        yield f"nothing comes while it is {idle}; by its rule it would be:"
    yield from (f"{instant(at)}  {wall_text(at, zone)}" for at in found)


def _lines(one: ScheduleView, coming: list[datetime], problem: str | None) -> Iterator[str]:
    facts: dict[str, object] = {
        "schedule": f"{one.name} ({one.state})",
        "rule": f"{one.rule}, {one.time_zone}",
        "job": f"{one.kind} version {one.version}, queue {one.queue}, tenant {one.tenant}, priority {one.priority}",
        "missed": f"{one.missed}, up to {one.missed_limit}; late after {one.grace_s} s; jitter {one.jitter_s} s",
        "between": f"{instant(one.starts_at)} and {instant(one.ends_at)}",
        "source": one.source,
        "next": instant(_comes(one)),
        "last": instant(one.last_at),
        "made": f"{one.made} jobs; {one.passed_over} occurrences were missed and not made up for",
    }
    if one.subject is not None:
        facts["about"] = f"{one.subject}{', each job ends those of it that wait' if one.supersedes else ''}"
    if one.limit_key is not None:
        order = ", in order" if one.limit_rule else ""
        blocks = ", a failed one blocks" if one.limit_rule == "b" else ""
        facts["key"] = f"{one.limit_key} in {one.limit_group}: {one.limit_max} at a time{order}{blocks}"
    if one.last_error is not None:
        facts["broken"] = f"since {instant(one.broken_at)}: {one.last_error}"
    if problem is not None:
        facts["unreadable"] = problem
    for name, value in facts.items():
        yield f"{name + ':':<12}{printable(str(value), _LINE)}"
    if coming:
        yield ""
        yield from _times(coming, one.time_zone, one.state if one.state in _IDLE else None)
