"""What the page on schedules says of clock changes, and its example, hold."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from outbox import preview_schedule
from outbox.schedules.declaring import checked
from outbox_schemas import occurrence_of

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)


def of_the_day(rule: str, day: datetime) -> list[str]:
    """Return what the wall shows, before six in the morning, when a rule comes."""
    found = preview_schedule(cron=rule, time_zone="Europe/Berlin", after=day.astimezone(UTC), n=50)
    walls = [at.astimezone(BERLIN) for at in found]
    return [f"{wall:%H:%M}" for wall in walls if wall.date() == day.date() and wall.hour < 6]


def test_the_table_of_clock_changes_is_true() -> None:
    """Each cell, in Berlin in 2026."""
    assert of_the_day("30 2 * * *", SPRING) == ["03:00"]
    assert of_the_day("0,30 2 * * *", SPRING) == ["03:00"]
    assert of_the_day("30 2 * * *", AUTUMN) == ["02:30"]
    assert of_the_day("*/15 * * * *", SPRING)[6:8] == ["01:45", "03:00"]
    quarters = ["02:00", "02:15", "02:30", "02:45"]
    assert of_the_day("*/15 * * * *", AUTUMN)[7:15] == quarters * 2
    assert of_the_day("*/15 2 * * *", SPRING) == []
    assert of_the_day("*/15 2 * * *", AUTUMN) == quarters * 2
    assert of_the_day("0,15,30,45 2 * * *", SPRING) == ["03:00"]
    assert of_the_day("0,15,30,45 2 * * *", AUTUMN) == quarters
    [leap] = preview_schedule(cron="30 2 * * *", time_zone="Europe/Berlin", after=SPRING.astimezone(UTC), n=1)
    named = re.search(r"`(nightly-report@[^`]*)`", PAGE)
    assert named is not None
    assert occurrence_of(named[1]) == ("nightly-report", leap, False)


def test_the_example_declares_two_schedules() -> None:
    """As it stands on the page; who imports it needs no database."""
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block[1], "schedules.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    assert [checked(schedule).rule for schedule in names["SCHEDULES"]] == ["30 2 * * *", "every 900s"]
