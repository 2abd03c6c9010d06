"""When a schedule's occurrences are: a cron expression in a time zone, or an interval. Pure, and bounded in every
search.

Expressions are read by `cronsim`, which follows Debian's cron: the same fields, the same meaning of day of month beside
day of week, and the same two kinds of rules where clocks change:

- A rule whose minute and hour both begin without a star names times of day. One that the clock leaps over in spring
  comes right after the gap; one that it shows twice in autumn comes the first time.
- Any other rule goes on in real time: what the clock shows, whenever it shows it. So does one that names all hours
  (`0,30 0-23 * * *`), other than in Debian's cron: it would be silent while the clock shows an hour again.

How instants are found is written here, and not left to cronsim, because a plan begins at any instant: also within an
hour that comes twice, where cronsim goes back in time, and where a clock changes by half an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import islice, takewhile
from typing import Protocol

from outbox.schedules.expressions import fields_of, parsed
from outbox.schedules.zones import Zone
from outbox_schemas import ScheduleRefused
from outbox_schemas.names import nature_of

__all__ = ["COUNTED", "CronRule", "IntervalRule", "Rule", "every_text", "parse_rule"]

LONGEST_EVERY_S = 366 * 86_400
COUNTED = 1_000_000
"""So many occurrences are counted at most at once."""

_EVERY = re.compile(r"every ([0-9]{1,8})s")
_FIRST_DAY = date(1970, 1, 1)
# A day and month that meet a day of the week do so again within 40 years, the century without a leap day included.
_YEARS = 50
_LAST_YEAR = 8999
_HOURS, _MINUTE, _DAY = 24, 60, 86_400
# One stretch of real time is looked through at once.
_STRETCH_S = 32 * _DAY
_MARGIN_S = 2 * _DAY


class Rule(Protocol):
    """What says when occurrences are: whole seconds since 1970, UTC, ascending and none twice.

    Attributes:
        by_zone: whether the data of a time zone decides: when that is brought up to date, another occurrence may be
            next.
    """

    by_zone: bool

    def after(self, instant: int) -> Iterator[int]:
        """Yield the occurrences after an instant, without end or up to the last one."""

    def count(self, after: int, until: int) -> int:
        """Return how many occurrences are after one instant and not after the other; at most `COUNTED`."""

    def newest(self, after: int, until: int, most: int) -> list[int]:
        """Return the last of those, `most` of them at most, ascending."""


class IntervalRule:
    """Every so many seconds of real time, counted from `anchor` in both directions: where a plan begins, its own bounds
    say. The anchor may lie ahead of the clock, which has been set back since.
    """

    def __init__(self, every_s: int, anchor: int) -> None:
        self._every = every_s
        self._anchor = anchor
        self.by_zone = False

    def after(self, instant: int) -> Iterator[int]:
        """Yield the occurrences after an instant, without end."""
        found = self._anchor + ((instant - self._anchor) // self._every + 1) * self._every
        while True:
            yield found
            found += self._every

    def count(self, after: int, until: int) -> int:
        """Return how many occurrences are after one instant and not after the other; at most `COUNTED`."""
        first = next(self.after(after))
        return min(max(0, (until - first) // self._every + 1), COUNTED)

    def newest(self, after: int, until: int, most: int) -> list[int]:
        """Return the last of those, `most` of them at most, ascending."""
        start = max(after, until - most * self._every)
        return [*takewhile(lambda found: found <= until, self.after(start))][-most:]


class CronRule:
    """A cron expression of five fields in a time zone. Raises `ScheduleRefused` for one that can't be."""

    def __init__(self, expression: str, zone: Zone) -> None:
        self._zone = zone
        self.by_zone = zone.name != "UTC"
        fields = fields_of(expression)
        self._parsed = parsed(" ".join(fields))
        # A star in either field: real time, as Debian's cron has it. All hours are a star, however they are written.
        self._real_time = any(field.startswith("*") for field in fields[:2]) or len({*self._parsed.hours}) == _HOURS
        self._times = sorted(
            (hour * 60 + minute) * _MINUTE for hour in self._parsed.hours for minute in self._parsed.minutes
        )
        if next(self._days(date(2000, 1, 1)), None) is None:
            raise ScheduleRefused("cron", "names a day that never comes; check day and month")

    def after(self, instant: int) -> Iterator[int]:
        """Yield the occurrences after an instant, up to the last one of the year 8999."""
        return self._in_real_time(instant) if self._real_time else self._by_the_wall(instant)

    def count(self, after: int, until: int) -> int:
        """Return how many occurrences are after one instant and not after the other; at most `COUNTED`."""
        return sum(1 for _ in islice(takewhile(lambda found: found <= until, self.after(after)), COUNTED))

    def newest(self, after: int, until: int, most: int) -> list[int]:
        """Return the last of those, `most` of them at most, ascending."""
        span = _DAY
        while True:  # back to where there are enough of them
            start = max(after, until - span)
            found = [*takewhile(lambda found: found <= until, self.after(start))]
            if len(found) >= most or start == after:
                return found[-most:]
            span *= 4

    def _by_the_wall(self, instant: int) -> Iterator[int]:
        shown = instant + self._zone.offset(instant)
        last = instant
        for day in self._days(_date(shown)):
            start = _wall(day)
            even = self._zone.is_even(start)
            offset = start - self._zone.instant_of(start)
            for time in self._times:
                if start + time <= shown:
                    continue
                found = start + time - offset if even else self._zone.instant_of(start + time)
                if found > last:  # several that fall into one gap are one
                    last = found
                    yield found

    def _in_real_time(self, instant: int) -> Iterator[int]:
        place = instant + 1
        while True:
            offset = self._zone.offset(place)
            end = self._zone.change(place, place + _STRETCH_S) or place + _STRETCH_S
            low, high = place + offset, end + offset
            near = low
            for day in self._days(_date(low)):
                start = _wall(day)
                if start >= high:
                    if near <= high - _MARGIN_S:  # nothing in between, whatever the clock does
                        end = max(end, start - _MARGIN_S)
                    break
                near = start + _DAY
                yield from (start + time - offset for time in self._times if low <= start + time < high)
            else:
                return
            place = end

    def _days(self, day: date) -> Iterator[date]:
        """Yield the days that fit, from this one on; each within 50 years of the one before, or there is none."""
        until = min(day.year + _YEARS, _LAST_YEAR)
        while day.year <= until:
            if day.month not in self._parsed.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._parsed.match_day(day):
                yield day
                until = min(day.year + _YEARS, _LAST_YEAR)
            day += timedelta(days=1)


def parse_rule(text: str, zone: str, anchor: datetime) -> Rule:
    """Return the rule that a stored text means: `every 900s`, from `anchor` on, or a cron expression.

    Raises:
        ScheduleRefused: the text or the zone means nothing, or nothing that ever comes.
    """
    if isinstance(text, str) and text.startswith("every"):
        found = _EVERY.fullmatch(text)
        if found is None:
            raise ScheduleRefused("every", "is no interval; give whole seconds, for example every 900s")
        Zone(zone)  # it decides nothing here, but is shown
        return IntervalRule(_checked_every(int(found[1])), int(anchor.timestamp()))
    return CronRule(text, Zone(zone))


def every_text(every: timedelta | int) -> str:
    """Return the text of an interval. Raises `ScheduleRefused` unless it is 1 second to 366 days, in whole seconds."""
    seconds: float | int
    if isinstance(every, timedelta):
        seconds = every.total_seconds()
    elif isinstance(every, int) and not isinstance(every, bool):
        seconds = every
    else:
        raise ScheduleRefused("every", f"must be a timedelta or whole seconds, not {nature_of(every)}")
    if seconds != int(seconds):
        raise ScheduleRefused("every", "has a fraction of a second; give whole seconds")
    return f"every {_checked_every(int(seconds))}s"


def _checked_every(seconds: int) -> int:
    if not 1 <= seconds <= LONGEST_EVERY_S:
        raise ScheduleRefused(
            "every", f"must be from 1 second to {LONGEST_EVERY_S // _DAY} days, not {nature_of(seconds)}"
        )
    return seconds


def _date(wall: int) -> date:
    return _FIRST_DAY + timedelta(days=wall // _DAY)


def _wall(day: date) -> int:
    return (day - _FIRST_DAY).days * _DAY
