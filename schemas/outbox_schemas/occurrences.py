"""The logical key of a schedule's occurrence: the schedule's name and the instant, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from outbox_schemas.errors import NameRefused
from outbox_schemas.names import check_name, nature_of

__all__ = ["Occurrence", "occurrence_key", "occurrence_of"]

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_ASKED = re.compile("[0-9a-f]{12}")
_KEY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99})@"
    r"(?:(?P<at>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)"
    r"|now-(?P<asked>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)-[0-9a-f]{12})"
)


class Occurrence(NamedTuple):
    """Which occurrence of which schedule a job is.

    Attributes:
        schedule: the schedule's name.
        at: the instant that its rule names, in UTC, to the second; the job may start later, never earlier.
        asked: a person has asked for it (`run_schedule_now`); then `at` is when.
    """

    schedule: str
    at: datetime
    asked: bool = False


def occurrence_key(name: str, at: datetime, asked: str | None = None) -> str:
    """Return the logical key of an occurrence. `asked`: twelve hexadecimal digits of their own for each extra run.

    Raises `NameRefused` for what is no schedule's name, no aware datetime, or no such digits.
    """
    check_name("name", name)
    if not isinstance(at, datetime) or at.utcoffset() is None:
        given = "a naive datetime" if isinstance(at, datetime) else nature_of(at)
        raise NameRefused("at", f"must be an aware datetime, for example datetime.now(UTC), not {given}")
    if asked is not None and not (isinstance(asked, str) and _ASKED.fullmatch(asked)):
        raise NameRefused("asked", f"must be twelve hexadecimal digits, not {nature_of(asked)}")
    instant = at.astimezone(UTC)
    # Not strftime: for years below 1000 it leaves out zeros on some platforms.
    text = instant.replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    return f"{name}@{text}" if asked is None else f"{name}@now-{text}-{asked}"


def occurrence_of(logical_key: str) -> Occurrence | None:
    """Return the occurrence that a logical key names, or None if it names none. `NameRefused`: it is no text."""
    if not isinstance(logical_key, str):
        raise NameRefused("logical_key", f"must be text, not {nature_of(logical_key)}")
    found = _KEY.fullmatch(logical_key)
    if found is None:
        return None
    try:
        at = datetime.strptime(found["at"] or found["asked"], _FORMAT).replace(tzinfo=UTC)
    except ValueError:  # the 31st of February
        return None
    return Occurrence(found["name"], at, asked=found["at"] is None)
