"""Cron expressions, read by `cronsim` after what it would let pass, or choke on, has been refused. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from outbox.schedules.cron_terms import check_terms
from outbox_schemas import ScheduleRefused

__all__ = ["check_expression", "fields_of", "parsed"]

LONGEST = 500
"""Characters of an expression: all minutes, hours, days and months in lists have fewer."""

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_CHARACTERS = re.compile(r"[0-9A-Za-z*,/# \t-]+")


def fields_of(expression: object) -> list[str]:
    """Return the five fields of an expression, or raise `ScheduleRefused`."""
    if not isinstance(expression, str):
        raise ScheduleRefused("cron", f"must be text, not {type(expression).__name__}")
    if len(expression) > LONGEST:
        raise ScheduleRefused("cron", f"has {len(expression)} characters; {LONGEST} are allowed: make two schedules")
    text = _ALIASES.get(expression.strip().lower(), expression)
    if text.strip().startswith("@"):
        raise ScheduleRefused("cron", f"is no known name; these are: {', '.join(_ALIASES)}")
    if not text.strip():
        raise ScheduleRefused("cron", 'is empty; give five fields, for example "30 2 * * *", or a name: @daily')
    if not _CHARACTERS.fullmatch(text):
        raise ScheduleRefused("cron", "may hold only ASCII letters and digits, blanks, and * , - / #")
    fields = text.split()
    if len(fields) != 5:
        raise ScheduleRefused(
            "cron", f"has {len(fields)} fields; five are needed: minute, hour, day of month, month, day of week"
        )
    return fields


@lru_cache(maxsize=256)
def parsed(expression: str) -> CronSim:
    """Return the parsed expression, of which only what does not change is used."""
    try:
        return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - wall time has no zone
    except CronSimError as error:
        check_terms(expression.split())
        what = str(error).removeprefix("Bad ")
        raise ScheduleRefused(
            "cron", f"has a {what} that means nothing, or never comes; an example of all five: 30 2 1,15 * MON-FRI"
        ) from None


def check_expression(expression: str) -> None:
    """Raise `ScheduleRefused` for what is read if it is stored, though it doesn't do what it says.

    Not asked of stored rules: those that an older release took go on.
    """
    check_terms(fields_of(expression))
