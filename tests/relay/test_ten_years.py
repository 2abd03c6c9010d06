"""Ten years of schedules in real relays, three at once, of which one after the other is killed in its turn."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pytest

from outbox import Schedule, sync_schedules
from outbox.processes.barriers import Barrier
from support.calendar import RULES, ZONES, Oracle, runs
from support.database import Database

from .conftest import Noop

FIRST, YEARS = 2018, 10
START, END = datetime(FIRST, 1, 1, tzinfo=UTC), datetime(FIRST + YEARS, 1, 1, tzinfo=UTC)
STEP = timedelta(days=61)
RELAYS, KILLS, AT_TURN = 3, 20, 40
# What comes more often is made around the changes of the clocks only: two million jobs would take an hour.
SELDOM = 4000
AROUND = timedelta(hours=30)
WAIT_S = 600
_MINUTES = """
SELECT split_part(logical_key, '@', 1),
  array_agg(extract(epoch FROM CAST(split_part(logical_key, '@', 2) AS timestamptz)) / 60 ORDER BY logical_key)
FROM {s}.jobs GROUP BY 1
"""
_DUE = "schedules WHERE wake_at <= {s}.clock()"


class Relays:
    """Three relays. One that a barrier has killed is followed by one that is to be killed at the next barrier, until
    enough were.
    """

    def __init__(self, launch: Callable[..., subprocess.Popen[str]]) -> None:
        self._launch = launch
        self._barriers = cycle((Barrier.RELAY_BEFORE_SCHEDULE, Barrier.RELAY_AFTER_SCHEDULE))
        self._running = [self._start() for _ in range(RELAYS)]
        self.killed = 0

    def tend(self) -> None:
        """Follow those that were killed. None has ended in another way."""
        gone = [child for child in self._running if child.poll() is not None]
        assert all(child.returncode == -9 for child in gone)
        for child in gone:
            self._running.remove(child)
            self.killed += 1
            self._running.append(self._start() if self.killed < KILLS else self._launch())

    def _start(self) -> subprocess.Popen[str]:
        return self._launch(OUTBOX_BARRIER=f"{next(self._barriers)}=kill@{AT_TURN}")


def planned() -> Iterator[tuple[Schedule, list[int]]]:
    """Yield schedules, and the minutes since 1970 at which the calendar has their occurrences."""
    for place, expression in enumerate(RULES):
        for zone in ZONES:
            minutes = Oracle(expression).minutes(zone, FIRST, YEARS)
            for first, last in _spans(zone, len(minutes)):
                some = [minute for minute in minutes if first.timestamp() <= minute * 60 <= last.timestamp()]
                if some:
                    name = f"r{place}.{zone.partition('/')[2].lower()}.{first:%Y%m}"
                    yield _schedule(name, first, last, cron=expression, time_zone=zone), some


def _spans(zone: str, occurrences: int) -> list[tuple[datetime, datetime]]:
    """Return from when until when a rule is followed that comes so often."""
    if occurrences <= SELDOM:
        return [(START, END - timedelta(seconds=1))]
    changes = [datetime.fromtimestamp(run.start * 60, UTC) for run in runs(zone, FIRST, YEARS)[1:]]
    return [(change - AROUND, change + AROUND) for change in changes]


def _schedule(name: str, first: datetime, last: datetime, **terms: Any) -> Schedule:
    terms |= {"missed": "all", "missed_limit": 10_000, "starts_at": first, "ends_at": last}
    return Schedule(name=name, payload=Noop(n=1), **terms)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_years_are_made_once_each_by_three_relays_that_are_killed(
    database: Database, launch: Any, eventually: Any
) -> None:
    """Two zones, fifty rules: what relays make is what an independent calendar has, whoever dies before or after the
    commit of a turn.
    """
    expected = {schedule.name: (schedule, minutes) for schedule, minutes in planned()}
    now = START - timedelta(hours=1)
    database.clock.set(now)
    with database.engine().begin() as connection:
        declared = [schedule for schedule, _ in expected.values()]
        sync_schedules(connection, declared, source="test", by="me", reason="a test")
    relays = Relays(launch)

    def rested() -> bool:
        relays.tend()
        return database.count(_DUE) == 0

    eventually(rested, within_s=WAIT_S)
    while now < END:
        now = min(now + STEP, END)
        database.clock.set(now)
        eventually(rested, within_s=WAIT_S)
    made = {name: [int(minute) for minute in minutes] for name, minutes in database.rows(_MINUTES)}
    wrong = [name for name, (_, minutes) in expected.items() if made.get(name, []) != minutes]
    assert wrong == []
    assert relays.killed >= KILLS
    assert database.count("schedules WHERE passed_over <> 0 OR broken_at IS NOT NULL") == 0
