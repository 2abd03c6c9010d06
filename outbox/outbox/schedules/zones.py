"""Time zones by their IANA names, and how wall time and instants correspond in one. Pure but for the zone's data.

Instants and wall times are whole seconds here: since 1970 in UTC, and what a clock on the wall shows read as if it
were UTC. `zoneinfo` finds the data of the system first, else that of the package `tzdata`, which comes with this one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from time import monotonic
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outbox_schemas import ScheduleRefused

__all__ = ["Zone", "wall_text"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+/-]{0,63}")
# What a machine's own setting decides, and what counts leap seconds: no names of zones.
_NO_ZONES = ("localtime", "posixrules", "posix/", "right/")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time has no zone
# So many seconds is kept what was read of a zone: no process has to be restarted for an update of the machine's data.
_KEPT_S = 60
# No zone has changed twice within so long.
_STEP_S = 6 * 3600


class Zone:
    """One time zone.

    Raises:
        ScheduleRefused: no zone of this name is known here.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = _zone_info(name)

    def offset(self, instant: int) -> int:
        """Return by how many seconds the wall clock is ahead of UTC at an instant."""
        return _seconds(datetime.fromtimestamp(instant, self._zone).utcoffset())

    def change(self, start: int, end: int) -> int | None:
        """Return the first instant after `start` and not after `end` from which another offset holds, or None."""
        before = self.offset(start)
        low = start
        while low < end:
            high = min(low + _STEP_S, end)
            if self.offset(high) != before:
                return self._first(low, high, before)
            low = high
        return None

    def is_even(self, day: int) -> bool:
        """Tell whether `instant_of` has one offset for all wall times of the day that begins at this one."""
        return self._offsets(day)[0] == self._offsets(day + 86_399)[1]

    def instant_of(self, wall: int) -> int:
        """Return when a wall clock shows this: the first time if it does twice; if never, the instant right after the
        gap.
        """
        first, second = self._offsets(wall)
        if second > first:  # the clock leaps over it, between these two
            return self._first(wall - second - 1, wall - first, first)
        return wall - first

    def _offsets(self, wall: int) -> tuple[int, int]:
        """Return the offsets before and after a change that concerns this wall time; the same twice for all others."""
        shown = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        return _seconds(shown.utcoffset()), _seconds(shown.replace(fold=1).utcoffset())

    def _first(self, low: int, high: int, before: int) -> int:
        """Return the first instant of another offset than `before`, which holds at `low` and no longer at `high`."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high


def _zone_info(name: object) -> tzinfo:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith(_NO_ZONES):
        raise ScheduleRefused(
            "time_zone", 'is no name of a time zone; give one of the IANA\'s, for example "Europe/Berlin" or "UTC"'
        )
    if name == "UTC":
        return UTC
    try:
        return _read(name, int(monotonic() // _KEPT_S))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleRefused(
            "time_zone", f'no time zone is called {name!r} here; give one of the IANA\'s, for example "Europe/Berlin"'
        ) from None


@lru_cache(maxsize=64)
def _read(name: str, _span: int) -> ZoneInfo:
    """Return what the data says now; `ZoneInfo` itself would keep for the process's life what it has found once."""
    return ZoneInfo.no_cache(name)


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else int(offset.total_seconds())


def wall_text(at: datetime, zone: str) -> str:
    """Return what a wall clock shows at an instant, with its offset, for people; nothing for an unknown zone."""
    try:
        return at.astimezone(_zone_info(zone)).isoformat(sep=" ")
    except ScheduleRefused:
        return ""
