"""A time zone's data that is brought up to date while relays run, as when a country changes its rules."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from outbox import get_schedule
from outbox.schedules import zones
from outbox.schedules.zones import Zone
from support.database import Database

LAND = "Test/Land"
Follow = Callable[[int, float], None]


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follow]:
    """Return a function that has this machine's data say by how many hours a land is ahead of UTC, after so many
    seconds of a process's life.
    """
    passed_s = 0.0
    (tmp_path / "Test").mkdir()

    def move(hours: int, after_s: float) -> None:
        nonlocal passed_s
        passed_s += after_s
        (tmp_path / LAND).write_bytes(files("tzdata.zoneinfo.Etc").joinpath(f"GMT-{hours}").read_bytes())

    zones._read.cache_clear()  # of tests before, whose life was another
    monkeypatch.setattr("outbox.schedules.zones.monotonic", lambda: passed_s)
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    yield move
    zoneinfo.reset_tzpath()


def test_new_data_takes_effect_within_a_minute(follow: Follow) -> None:
    """What was read is kept for a moment only, and not for the process's life; whoever has it goes on with it."""
    follow(2, 0)
    before = Zone(LAND)
    follow(3, 30)
    assert Zone(LAND).offset(0) == 2 * 3600
    follow(3, 30)
    assert Zone(LAND).offset(0) == 3 * 3600
    assert before.offset(0) == 2 * 3600


@pytest.mark.parametrize(
    ("hours", "updated", "expected"),
    [
        (3, "11:05", "12:00"),  # an hour earlier, and known in time
        (3, "12:15", "12:00"),  # known too late: it was missed
        (1, "11:05", "14:00"),
        (1, "12:55", "14:00"),
        (2, "12:15", "13:00"),
    ],
)
def test_an_occurrence_follows_new_data(
    plan: Any, database: Database, follow: Follow, hours: int, updated: str, expected: str
) -> None:
    """A schedule that sleeps to an instant of the old data is looked at within the hour and comes once by the new. What
    comes earlier by it than anybody knew was missed, and goes by the policy. A look that finds nothing moves no place.
    """
    begun = plan.at("2026-05-01T05:00:00Z")
    follow(2, 0)
    plan.add(cron="0 15 * * *", time_zone=LAND)
    looks = 0
    for minutes in range(0, 24 * 60, 5):
        now = begun + timedelta(minutes=minutes)
        database.clock.set(now)
        if f"{now:%H:%M}" == updated:
            database.rows("UPDATE {s}.schedules SET wake_at = '-infinity'")
            plan.turns()
            assert plan.row()["made"] == 0
            assert plan.row()["after_at"] == begun
            follow(hours, 60)
        looks += len(plan.turns())
    assert plan.made() == [f"2026-05-01T{expected}:00Z"]
    assert plan.row()["passed_over"] == 0
    assert plan.row()["next_at"] == datetime.fromisoformat(f"2026-05-02T{expected}:00Z").astimezone(UTC)
    assert 24 <= looks <= 60


def test_what_no_zone_decides_sleeps_until_it_comes(plan: Any) -> None:
    """An interval, and an expression in UTC: nothing can become another."""
    begun = plan.at("2026-05-01T05:00:00Z")
    plan.add("interval", every=86_400, time_zone="Europe/Berlin")
    plan.add("utc", cron="0 4 * * *")
    plan.turns()
    plan.database.clock.set(begun + timedelta(hours=22))
    assert plan.turns() == []


def test_a_schedule_of_a_zone_is_over_when_nothing_comes(plan: Any, database: Database) -> None:
    """Nobody looks at it any more, and it is shown as over."""
    plan.at("2026-05-01T05:00:00Z")
    plan.add(cron="0 15 * * *", time_zone="Europe/Berlin", ends_at=datetime(2026, 5, 1, 14, tzinfo=UTC))
    plan.turns()
    plan.at("2026-05-01T13:00:00Z")
    plan.turns()
    assert plan.made() == ["2026-05-01T13:00:00Z"]
    assert database.value("SELECT wake_at = 'infinity' FROM {s}.schedules")
    with database.engine().connect() as connection:
        assert get_schedule(connection, "nightly").state == "over"
