"""How long a dependency asks to be left alone: what `Retry-After` may hold, and what handlers make of it. Pure but for
the local clock, which is asked where a date comes without its sender's own.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

__all__ = ["Wait", "header_wait_s", "wanted_wait"]

Wait = timedelta | datetime | float | str | None
"""What a wait may be given as."""

_SECONDS = re.compile(r"[0-9]{1,20}")


def header_wait_s(text: str, *, date: str = "", now: datetime | None = None) -> float | None:
    """Return what a `Retry-After` asks for, in seconds: a whole number of them, or the time until a date, which is
    counted from `date` (the answer's own) or else from `now`. None if it can't be read; 0 for what is past.
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    until = _instant(text)
    if until is None:
        return None
    since = _instant(date.strip()) or now or datetime.now(UTC)
    return max((until - since) / timedelta(seconds=1), 0.0)


def wanted_wait(value: Wait) -> timedelta:
    """Return a wait as a duration, whatever it was given as. Never raises: this runs while an error is being made, and
    another one in its place would tell nobody that nothing has happened.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, datetime):
        until = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return max(until - datetime.now(UTC), timedelta(0))
    seconds = header_wait_s(value) if isinstance(value, str) else value
    try:
        return timedelta(seconds=0 if seconds is None else seconds)
    except OverflowError:
        return timedelta.max if seconds is not None and seconds > 0 else timedelta(0)
    except (ValueError, TypeError):
        return timedelta(0)


def _instant(text: str) -> datetime | None:
    """Read a date in any of the three forms that HTTP has had."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
