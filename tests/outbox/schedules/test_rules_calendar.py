"""Rules against an independent calendar: ten years, two zones that change their clocks, fifty rules, once each."""

from __future__ import annotations

from bisect import bisect
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from outbox.schedules.rules import parse_rule
from support.calendar import RULES, ZONES, Oracle, runs

FIRST, YEARS = 2018, 10
# All hours, written without a star.
EACH_HOUR = {
    "0,30 0-23 * * *": "0,30 * * * *",
    "59 0-23/1 * * *": "59 * * * *",
    "15 0/1 * * SUN": "15 * * * SUN",
    "5/20 12-23,0-11 * 3,10,11 *": "5/20 * * 3,10,11 *",
    "0 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 1 * *": "0 * 1 * *",
}
START = datetime(FIRST, 1, 1, tzinfo=UTC)
# Changes by half an hour, at midnight, up to midnight, during Ramadan, of a whole day; and none.
ODD_ZONES = (
    ("Australia/Lord_Howe", 2018),
    ("America/Sao_Paulo", 2010),
    ("Africa/Casablanca", 2018),
    ("Africa/Cairo", 2022),
    ("America/Havana", 2018),
    ("Asia/Beirut", 2018),
    ("Pacific/Apia", 2008),
    ("America/Nuuk", 2021),
    ("Asia/Kathmandu", 2018),
    ("UTC", 2018),
)


def found(expression: str, zone: str, first: int, years: int) -> list[int]:
    """Return the product's occurrences within these years, in minutes since 1970."""
    start = int(datetime(first, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(first + years, 1, 1, tzinfo=UTC).timestamp())
    rule = parse_rule(expression, zone, START)
    instants = [*takewhile(lambda instant: instant < end, rule.after(start - 1))]
    assert all(one < other for one, other in pairwise(instants))
    assert not any(instant % 60 for instant in instants)
    return [instant // 60 for instant in instants]


def test_there_are_fifty_rules() -> None:
    """The list is as long as promised, and none stands in it twice."""
    assert len(set(RULES)) == len(RULES) == 50


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", RULES)
def test_ten_years_of_a_rule_are_those_of_the_calendar(expression: str, zone: str) -> None:
    """Over ten years each occurrence is where an independent calendar has it, and there once."""
    assert found(expression, zone, FIRST, YEARS) == Oracle(expression).minutes(zone, FIRST, YEARS)


@pytest.mark.parametrize("zone", [*ZONES, "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", EACH_HOUR)
def test_all_hours_are_a_star_however_they_are_written(expression: str, zone: str) -> None:
    """A rule of each hour is not silent while the clock shows an hour again, nor comes where it leaps over one."""
    ours = found(expression, zone, FIRST, YEARS)
    assert ours == Oracle(expression).minutes(zone, FIRST, YEARS)
    assert ours == found(EACH_HOUR[expression], zone, FIRST, YEARS)


@pytest.mark.parametrize(("zone", "first"), ODD_ZONES)
def test_odd_changes_are_those_of_the_calendar(zone: str, first: int) -> None:
    """Half an hour, midnight, a month without, a day that is missing: every rule, over five years."""
    different = [
        expression
        for expression in RULES
        if found(expression, zone, first, 5) != Oracle(expression).minutes(zone, first, 5)
    ]
    assert different == []


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", RULES)
def test_debian_s_rules_agree(expression: str, zone: str) -> None:
    """From one instant on, cronsim's own simulation of Debian's cron gives the same over a leap year and a month."""
    simulated = CronSim(expression, datetime(2023, 12, 31, 23, 59, tzinfo=ZoneInfo(zone)))
    start = int(datetime(2023, 12, 31, 23, 59, tzinfo=ZoneInfo(zone)).timestamp())
    until = start + 400 * 86_400
    theirs = takewhile(lambda at: at < until, (int(at.timestamp()) for at in simulated))
    ours = takewhile(lambda at: at < until, parse_rule(expression, zone, START).after(start))
    assert [*ours] == [*theirs]


@pytest.mark.parametrize("zone", [*ZONES, "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 0 * * *", "*/15 2 * * *", "30 * * * *", "15,45 1,2,3 * * *"])
def test_a_plan_may_begin_anywhere(expression: str, zone: str) -> None:
    """Whatever instant a look begins at, also within a gap or an hour that comes twice, what follows is the same."""
    rule = parse_rule(expression, zone, START)
    changes = [run.start * 60 for run in runs(zone, 2010, 2)[1:]]
    assert changes
    whole = found(expression, zone, 2010, 3)
    for change in changes:
        for begun in range(change - 90_000, change + 90_000, 421):  # not a multiple of a minute
            assert next(rule.after(begun)) == whole[bisect(whole, begun // 60)] * 60
    for one, other in islice(pairwise(whole), 0, None, 7):
        assert next(rule.after(one * 60)) == next(rule.after(other * 60 - 1)) == other * 60


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", [*ZONES, "Australia/Lord_Howe", "Africa/Casablanca"])
def test_thirty_years_minute_by_minute(zone: str) -> None:
    """The same with a calendar that looks at every single minute, over thirty years."""
    for expression in RULES:
        assert found(expression, zone, 2000, 30) == Oracle(expression).minutes(zone, 2000, 30, every=1), expression
