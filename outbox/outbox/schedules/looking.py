"""Schedules and what comes of their rules, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from outbox.database.statements import statements_for
from outbox.database.targets import Target, connection_of, schema_of
from outbox.schedules.declaring import check_term, rule_of
from outbox.schedules.planning import Missed, Terms, upcoming
from outbox.schedules.rules import parse_rule
from outbox.schedules.views import ScheduleView, view_of
from outbox_schemas import ScheduleNotFound, ScheduleRefused
from outbox_schemas.names import check_instant, check_name, nature_of

__all__ = ["MOST_PREVIEWED", "ended_by", "get_schedule", "list_schedules", "occurrences_of", "preview_schedule"]

MOST_PREVIEWED = 1000


def list_schedules(target: Target, *, source: str | None = None, schema: str | None = None) -> list[ScheduleView]:
    """Return the schedules, of one source or all, by their names. Raises `NameRefused` for what names no source."""
    if source is not None:
        check_name("source", source)
    parameters = {"name": None, "source": source}
    rows = statements_for(schema_of(target, schema)).run_within(connection_of(target), "list_schedules", parameters)
    return [view_of(row) for row in rows]


def get_schedule(target: Target, name: str, *, schema: str | None = None) -> ScheduleView:
    """Return one schedule. Raises `ScheduleNotFound`."""
    parameters = {"name": check_name("name", name), "source": None}
    rows = statements_for(schema_of(target, schema)).run_within(connection_of(target), "list_schedules", parameters)
    if not rows:
        raise ScheduleNotFound(name)
    return view_of(rows[0])


def preview_schedule(
    *,
    after: datetime,
    n: int = 10,
    cron: str | None = None,
    every: timedelta | int | None = None,
    time_zone: str = "UTC",
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> list[datetime]:
    """Return the next `n` occurrences after an instant, in UTC, as relays find them. Asks no database.

    An interval is counted from `starts_at`, else from `after`.

    Raises:
        ScheduleRefused, NameRefused: the rule or a term can't be, or `n` is not from 1 to 1,000.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_PREVIEWED:
        raise ScheduleRefused("n", f"must be a whole number from 1 to {MOST_PREVIEWED}, not {nature_of(n)}")
    place = check_instant("after", after)
    start, end = check_term(starts_at, ends_at)
    rule = parse_rule(rule_of(cron, every), time_zone, start or place)
    return upcoming(Terms(rule, Missed.LATEST, 1, 0, start, end), place, n)


def ended_by(views: Iterable[ScheduleView], now: datetime) -> list[str]:
    """Return the names of those that are not disabled, and of which nothing comes after `now`: their end is before."""
    return [
        view.name
        for view in views
        if view.ends_at is not None and view.disabled_at is None and not occurrences_of(view, now, 1)
    ]


def occurrences_of(view: ScheduleView, after: datetime, n: int) -> list[datetime]:
    """Return the next `n` occurrences of a stored schedule after an instant, as relays find them. Raises
    `ScheduleRefused` if its rule or zone, stored by hand, can't be.
    """
    rule = parse_rule(view.rule, view.time_zone, view.starts_at or view.created_at)
    return upcoming(Terms(rule, Missed.LATEST, 1, 0, view.starts_at, view.ends_at), after, n)
