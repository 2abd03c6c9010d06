"""What is wrong with the terms of a cron expression, in words: stricter than what is read of stored rules. Pure.

A rule that means something else than it says is as bad as one that means nothing: a step that is larger than what it
steps through leads nowhere, and a day that no month of the rule has never comes.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass

from outbox_schemas import ScheduleRefused

__all__ = ["check_terms"]

_LEAP_YEAR = 2000
_QUOTED = 24
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_LAST_DAYS = frozenset({"L", "LW"})


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the five: what it may hold. `size`: how many different values; Sunday is 0 and 7."""

    name: str
    low: int
    high: int
    size: int
    names: tuple[str, ...] = ()

    def value(self, word: str, term: str) -> int:
        """Return what a number or a name means, or raise `ScheduleRefused`."""
        if word.upper() in self.names:
            return self.names.index(word.upper()) + self.low
        if word and not _NUMBER.fullmatch(word):
            known = f" or one of {', '.join(self.names)}" if self.names else ""
            raise self.refused(term, f"give a number from {self.low} to {self.high}{known}, not {_short(word)!r}")
        if not word or not self.low <= int(word) <= self.high:
            raise self.refused(term, f"give numbers from {self.low} to {self.high}")
        return int(word)

    def refused(self, term: str, why: str) -> ScheduleRefused:
        """Return the refusal of a term."""
        return ScheduleRefused("cron", f"has {_short(term)!r} in its {self.name}: {why}")


_FIELDS = (
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day of month", 1, 31, 31),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("day of week", 0, 7, 7, _DAYS),
)
_DAY, _MONTH, _WEEKDAY = _FIELDS[2:]


def check_terms(fields: list[str]) -> None:
    """Raise `ScheduleRefused`, which names the field, the term, what is wrong and what to write, unless every term of
    these five fields says what it will do, and each day of the month comes in one of the months.
    """
    values = {field: _values(field, text) for field, text in zip(_FIELDS, fields, strict=True)}
    days, months = values[_DAY], values[_MONTH]
    longest = max((monthrange(_LEAP_YEAR, month)[1] for month in months), default=_DAY.high)
    if days and min(days) > longest:
        raise _DAY.refused(
            fields[2],
            f"the longest of its months has {longest} days, so that never comes; for the last day of a month write L",
        )


def _values(field: _Field, text: str) -> set[int]:
    """Return the values of a field, without days that count from a month's end."""
    return set().union(*(_term(field, term) for term in text.split(",")))


def _term(field: _Field, term: str) -> set[int]:
    if not term:
        raise field.refused(",", "there is an empty part beside a comma; take the comma out")
    if field is _DAY and term.upper() in _LAST_DAYS:
        return {1}  # each month has a last day
    if field is _WEEKDAY and ("#" in term or term.upper().endswith("L")):
        _nth(field, term)
        return set()
    span, slash, _ = term.partition("/")
    low, high = _span(field, span, term, stepped=bool(slash))
    return set(range(low, high + 1, _step(field, term, low, high) if slash else 1))


def _span(field: _Field, span: str, term: str, *, stepped: bool) -> tuple[int, int]:
    if span == "*":
        return field.low, field.high
    first, dash, last = span.partition("-")
    low = field.value(first, term)
    if not dash:
        return low, field.high if stepped else low
    high = field.value(last, term)
    if high < low:
        raise field.refused(term, f"goes from {low} back to {high}; write {_in_two(field, low, high)}")
    return low, high


def _in_two(field: _Field, low: int, high: int) -> str:
    """Return what a range means that goes past the field's end; the week's end is 7, so that it begins with 1."""
    first = 1 if field is _WEEKDAY else field.low
    parts = [(low, field.high)] + ([(first, high)] if high >= first else [])
    return ",".join(f"{start}" if start == end else f"{start}-{end}" for start, end in parts)


def _step(field: _Field, term: str, low: int, high: int) -> int:
    span, _, step = term.partition("/")
    if not _NUMBER.fullmatch(step) or int(step) == 0:
        raise field.refused(term, f"a step is a whole number from 1 to {field.size}, behind one /")
    # From a value on, or through all of them: with a step as large as the field it comes once each time, as it says.
    most = high - low + 1 if "-" in span else field.size
    if int(step) > most:
        raise field.refused(
            term,
            f"a step of {step} is larger than the {most} values that it goes through, so that only {low} is left; "
            f"write {low}, or a longer interval by `every` (in commands `--every`)",
        )
    return int(step)


def _nth(field: _Field, term: str) -> None:
    if "#" not in term:  # the last one of the month
        field.value(term[:-1], term)
        return
    day, _, place = term.partition("#")
    field.value(day, term)
    if place not in {"1", "2", "3", "4", "5"}:
        raise field.refused(term, "behind # stands which one of the month, 1 to 5")


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
