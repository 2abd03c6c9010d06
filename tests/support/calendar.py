"""A calendar that knows nothing of the product's: it walks over the minutes of UTC, asks `zoneinfo` what the clock on
the wall shows, and applies a rule's fields to that.

The policy for clock changes, as this calendar has it: a rule whose minute and hour fields both begin without a star
names times of day. Such a time comes at the first minute that shows it; one that no minute shows comes at the first
minute after the gap that swallows it. Every other rule comes at every minute that shows what it asks for, and so does
one that asks for each of the 24 hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

ZONES = ("Europe/Berlin", "America/New_York")
RULES = (
    "30 2 * * *", "30 1 * * *", "0 0 * * *", "0 2 * * *", "0 3 * * *", "59 1 * * *", "0,30 2 * * *",
    "15,45 1,2,3 * * *", "0 1-4 * * *", "5/10 2 * * *", "0 0 1 * *", "0 0 31 * *", "30 2 29 2 *", "0 12 29 2 1",
    "30 2 * 3 SUN", "30 2 25-31 3,10 0", "30 1 1-7 11 7", "0 9 * * MON-FRI", "0 9-17 * * 1-5", "15 10 15 * *",
    "0 0 * * 0", "0 0 * * 7", "0 6 1,15 * 1", "30 23 * * *", "45 23 31 12 *", "0 0 1 1 *", "0 0 1 */3 *",
    "0 4 */2 * *", "10 8 */10 * 2", "20 2 1-10/3 * *", "0 5 * JAN,JUL *", "0 22 * * SAT,SUN", "1 2 3 4 *",
    "58 2,14 * * *", "0 2 8-14 3 *", "*/15 2 * * *", "*/20 0-6 * * *", "*/30 * * * *", "0 * * * *", "30 * * * *",
    "0 */2 * * *", "0 */6 * * *", "45 */3 * * 1-5", "*/45 1-3 * * SUN", "* 2 * 3,10,11 *", "*/5 * 1 * *",
    "0,59 * * * *", "17 * */5 * *", "7-9 */4 * 2 *", "*/10 1,2 * * *",
)  # fmt: skip

_NAMES = {name: str(number) for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])} | {
    name: str(number + 1)
    for number, name in enumerate(["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"])
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time


@dataclass(frozen=True)
class Run:
    """Minutes of UTC in a row during which the wall clock goes on evenly. Both in minutes since 1970."""

    start: int
    wall: int
    minutes: int


@cache
def runs(zone: str, first_year: int, years: int, every: int = 60) -> list[Run]:
    """Walk over these years by UTC and return the runs in which the wall clock does not jump.

    Every so many minutes it looks at the wall; where that has not gone on evenly, it looks at every minute.
    """
    info = ZoneInfo(zone)
    minute = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp()) // 60
    end = int(datetime(first_year + years, 1, 1, tzinfo=UTC).timestamp()) // 60

    def wall(now: int) -> int:
        seen = datetime.fromtimestamp(now * 60, info)
        return (seen.toordinal() - 719_163) * 1440 + seen.hour * 60 + seen.minute

    found: list[Run] = []
    start, begun = minute, wall(minute)
    for look in range(minute + every, end + every, every):
        if wall(look) - wall(look - every) == every:
            continue
        for now in range(look - every + 1, min(look + 1, end)):
            if wall(now) != wall(now - 1) + 1:
                found.append(Run(start, begun, now - start))
                start, begun = now, wall(now)
    found.append(Run(start, begun, end - start))
    return found


def _field(text: str, place: int) -> set[int]:
    low, high = _BOUNDS[place]
    chosen: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            start, stop = low, high
        else:
            start = int(_NAMES.get(first, first))
            stop = int(_NAMES.get(last, last)) if dash else (high if step else start)
        chosen |= set(range(start, stop + 1, int(step or 1)))
    return {number % 7 for number in chosen} if place == 4 else chosen


class Oracle:
    """One expression of plain fields: numbers, names, ranges, steps, lists."""

    def __init__(self, expression: str) -> None:
        fields = expression.split()
        minutes, hours, self._days, self._months, self._weekdays = (_field(text, n) for n, text in enumerate(fields))
        self._times = sorted(hour * 60 + minute for hour in hours for minute in minutes)
        self._either = not (fields[2].startswith("*") or fields[4].startswith("*"))
        self.real_time = fields[0].startswith("*") or fields[1].startswith("*") or hours == set(range(24))

    def is_day(self, day: date) -> bool:
        """Tell whether the fields of day, month and weekday fit."""
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return day.month in self._months and (of_month or of_week if self._either else of_month and of_week)

    def walls(self, low: int, high: int) -> Iterator[int]:
        """Yield the wall minutes from `low` up to before `high` that fit."""
        for number in range(low // 1440, (high - 1) // 1440 + 1):
            if self.is_day((_EPOCH + timedelta(days=number)).date()):
                yield from (number * 1440 + time for time in self._times if low <= number * 1440 + time < high)

    def minutes(self, zone: str, first_year: int, years: int, every: int = 60) -> list[int]:
        """Return every minute of UTC, since 1970, at which the rule comes within these years."""
        found: list[int] = []
        shown_until: int | None = None  # the wall minutes before this one have been shown
        for run in runs(zone, first_year, years, every):
            if self.real_time or shown_until is None:
                low = run.wall
            else:
                if any(True for _ in self.walls(shown_until, run.wall)):  # swallowed
                    found.append(run.start)
                low = max(run.wall, shown_until)
            high = run.wall + run.minutes
            found += [wall - run.wall + run.start for wall in self.walls(low, high)]
            shown_until = high if shown_until is None else max(shown_until, high)
        return sorted(set(found))
