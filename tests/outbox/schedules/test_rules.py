"""Rules and zones that can't be, and what is found in a bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import Schedule, preview_schedule
from outbox.schedules.cron_terms import check_terms
from outbox.schedules.expressions import parsed
from outbox.schedules.rules import COUNTED, IntervalRule, every_text, parse_rule
from outbox.schedules.zones import Zone
from outbox_schemas import ScheduleRefused

from .conftest import Report

START = datetime(2026, 1, 1, tzinfo=UTC)
IMPOSSIBLE = [
    "0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 2,4,6,9,11 *", "* * 30 2 *", "0 0 30-31 2 */2",
    "0 0 */31 * MON#3", "*/5 0 */30 * 2#2",
]  # fmt: skip
MEANINGLESS = [
    "", " ", "*", "* * * *", "* * * * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *",
    "* * * 13 *", "* * * * 8", "-1 * * * *", "1-0 * * * *", "*/0 * * * *", "1,,2 * * * *", ", * * * *", "a * * * *",
    "1.5 * * * *", "1 2 3 4 5#6", "* * * FOO *", "* * * * L", "@reboot", "@", "@hourly @hourly", "0 0 * * * 2020",
    "\u0663 * * * *", "\uff11 * * * *", "5 0 * * \xb2", "0 0 * * \u017fun",
    "0\u20030 * * *", "\x00 * * * *", "* * * * *\n#",
    "* " * 5000,
    "1," * 5000 + "1 * * * *", "every", "every s", "every 0s", "every -5s", "every 5", "every 99999999s",
    "every \u0663s",
]  # fmt: skip


@pytest.mark.parametrize("text", [*IMPOSSIBLE, *MEANINGLESS], ids=lambda text: repr(text[:20]))
def test_a_rule_that_cannot_be_is_refused_at_once(text: str) -> None:
    """What never comes, means nothing, is too long or is no ASCII is refused with its field, in a bounded time."""
    began = time.process_time()
    with pytest.raises(ScheduleRefused, match=r"^(cron|every): ") as caught:
        parse_rule(text, "Europe/Berlin", START)
    assert time.process_time() - began < 1
    assert len(str(caught.value)) < 300


MISLEADING = [
    ("*/100 * * * *", "minute", "*/100", "60 values"), ("5/61 * * * *", "minute", "5/61", "write 5"),
    ("10-20/15 * * * *", "minute", "10-20/15", "11 values"), ("0 */25 * * *", "hour", "*/25", "24 values"),
    ("0 0 */32 * *", "day of month", "*/32", "31 values"), ("0 0 * */13 *", "month", "*/13", "12 values"),
    ("0 0 * * */8", "day of week", "*/8", "7 values"), ("*/0 * * * *", "minute", "*/0", "from 1 to 60"),
    ("1/2/3 * * * *", "minute", "1/2/3", "behind one /"), ("50-10 * * * *", "minute", "50-10", "write 50-59,0-10"),
    ("0 0 * * FRI-MON", "day of week", "FRI-MON", "write 5-7,1"),
    ("0 0 * * MON-SUN", "day of week", "MON-SUN", "write 1-7"),
    ("0 0 * DEC-JAN *", "month", "DEC-JAN", "write 12,1"), ("0 0 31 2 *", "day of month", "31", "29 days"),
    ("0 0 31 4,6 *", "day of month", "31", "30 days"), ("0 0 30 2 MON", "day of month", "30", "29 days"),
    ("0 0 * * monday", "day of week", "monday", "MON"), ("0 0 * JANUARY *", "month", "JANUARY", "JAN"),
    ("60 * * * *", "minute", "60", "from 0 to 59"), ("0 0 * * 5#6", "day of week", "5#6", "1 to 5"),
    ("0 0 L/5 * *", "day of month", "L/5", "from 1 to 31"), ("1,,2 * * * *", "minute", ",", "take the comma out"),
    ("0 0 * * MON#L", "day of week", "MON#L", "1 to 5"),
    ("99999999999 * * * *", "minute", "99999999999", "from 0 to 59"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "field", "term", "remedy"), MISLEADING)
def test_what_does_not_do_what_it_says_is_refused_by_its_field(text: str, field: str, term: str, remedy: str) -> None:
    """A step that leads nowhere, a range that goes back, a day that never comes, a long name: one line says which term
    of which field, why, and what to write.
    """
    for declare in (
        lambda: Schedule(name="n", payload=Report(), cron=text),
        lambda: preview_schedule(after=START, cron=text),
    ):
        with pytest.raises(ScheduleRefused) as caught:
            declare()
        said = str(caught.value)
        assert said.startswith(f"cron: has {term!r} in its {field}: ")
        assert remedy in said
        assert len(said) < 250


@pytest.mark.parametrize("text", ["*/100 * * * *", "0 0 30 2 MON", "10-20/15 * * * *", "0 0 L/5 * *"])
def test_what_an_older_release_stored_is_read_as_before(text: str) -> None:
    """A rule that would be refused today goes on where it is stored: an upgrade stops no schedule."""
    assert next(parse_rule(text, "UTC", START).after(int(START.timestamp()))) > START.timestamp()


@given(
    st.lists(
        st.text("0123456789*-/,#LWMONJAsun", min_size=1, max_size=6) | st.sampled_from(["*", "*/5", "1-5", "SUN", "L"]),
        min_size=5,
        max_size=5,
    )
)
def test_what_passes_the_terms_is_read(fields: list[str]) -> None:
    """Whatever the check of terms lets pass has a meaning, or a day that never comes; nothing breaks it."""
    try:
        check_terms(fields)
    except ScheduleRefused:
        return
    assert parsed(" ".join(fields)).minutes


def test_a_plan_without_an_occurrence_is_refused() -> None:
    """A start and an end between which nothing comes are refused where they are written; one instant is enough."""
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for rule in ({"cron": "0 13 * * *"}, {"cron": "0 11 * * *"}):
        with pytest.raises(ScheduleRefused, match=r"^ends_at: .*nothing would ever come"):
            Schedule(name="n", payload=Report(), starts_at=at, ends_at=at + timedelta(minutes=30), **rule)
    for rule in ({"cron": "0 12 * * *"}, {"every": 7200}):
        Schedule(name="n", payload=Report(), starts_at=at, ends_at=at, **rule)


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["* * * * *"]])
def test_what_is_no_text_is_refused(value: Any) -> None:
    """A rule of another type is no rule."""
    with pytest.raises(ScheduleRefused, match=r"^cron: must be text"):
        parse_rule(value, "UTC", START)


def test_rare_days_are_found_in_time() -> None:
    """A leap day is accepted, also one that must be a Monday and across 2100, and found without a long search."""
    began = time.process_time()
    leap = parse_rule("0 0 29 2 *", "UTC", START).after(int(datetime(2096, 3, 1, tzinfo=UTC).timestamp()))
    assert datetime.fromtimestamp(next(leap), UTC) == datetime(2104, 2, 29, tzinfo=UTC)
    for text in ("0 0 29 2 */7", "*/10 * 29 2 */7"):
        found = next(parse_rule(text, "Europe/Berlin", START).after(int(START.timestamp())))
        assert datetime.fromtimestamp(found + 3600, UTC).date().isoformat() == "2032-02-29"
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "zone",
    ["America/New_Yrok", "US/Pacific-New", "", "Berlin", "Europe", "Europe/", "/etc/passwd", "../UTC", "localtime",
     "posixrules", "right/UTC", "leapseconds", "tzdata.zi", "zone.tab", "x" * 100, "Europe/Berl\u0131n", "UTC\n",
     None, 7, "Europe/" + "x" * 10_000],
)  # fmt: skip
def test_an_unknown_zone_is_refused(zone: Any) -> None:
    """A name that is none, a folder, a path or another file beside the zones is refused, for rules of both kinds."""
    for text in ("0 0 * * *", "every 60s"):
        with pytest.raises(ScheduleRefused, match=r"^time_zone: ") as caught:
            parse_rule(text, zone, START)
        assert len(str(caught.value)) < 300


def test_zones_are_known_where_the_system_has_none() -> None:
    """On an image without zone data, that of the package is found."""
    code = "from outbox.schedules.zones import Zone; print(Zone('Europe/Berlin').offset(1782864000))"
    env = os.environ | {"PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "7200"


def test_the_ends_of_time_end_the_search() -> None:
    """A rule has a last occurrence, in the year 8999, and no look beyond it fails."""
    late = int(datetime(8999, 12, 30, tzinfo=UTC).timestamp())
    assert len([*parse_rule("0 12 * * *", "Europe/Berlin", START).after(late)]) == 2
    assert len([*parse_rule("0 */12 * * *", "Europe/Berlin", START).after(late)]) <= 5


def test_no_more_is_counted_than_is_of_use() -> None:
    """Years of a frequent rule are counted up to a bound, and the last ones are found from the end."""
    rule = parse_rule("* * * * *", "Europe/Berlin", START)
    end = int(START.timestamp())
    begun = time.process_time()
    assert rule.count(end - 30 * 366 * 86_400, end) == COUNTED
    assert rule.newest(end - 30 * 366 * 86_400, end, 3) == [end - 120, end - 60, end]
    assert time.process_time() - begun < 20


@given(
    every=st.integers(1, 10_000),
    anchor=st.integers(0, 10**6),
    after=st.integers(0, 2 * 10**6),
    span=st.integers(0, 10**5),
    most=st.integers(1, 50),
)
def test_intervals_are_plain_arithmetic(every: int, anchor: int, after: int, span: int, most: int) -> None:
    """The anchor and every multiple before and after it, counted and found from both ends alike."""
    rule = IntervalRule(every, anchor)
    until = after + span
    naive = [at for at in range(anchor % every, until + 1, every) if at > after]
    found = rule.after(after)
    assert [next(found) for _ in naive] == naive
    assert next(found) > until
    assert rule.count(after, until) == len(naive)
    assert rule.newest(after, until, most) == naive[-most:]


@pytest.mark.parametrize(
    "every", [0, -1, 1.5, True, "60", timedelta(seconds=0.5), timedelta(days=400), timedelta(0), 10**9, float("nan")]
)
def test_an_interval_out_of_bounds_is_refused(every: Any) -> None:
    """Whole seconds, from one to 366 days."""
    with pytest.raises(ScheduleRefused, match=r"^every: "):
        every_text(every)


def test_wall_times_and_instants_correspond() -> None:
    """A gap's times lead to its end, a repeated time to its first instant, to the second."""
    zone = Zone("Australia/Lord_Howe")
    wall = int(datetime(2025, 10, 5, 2, 10, tzinfo=UTC).timestamp())
    assert datetime.fromtimestamp(zone.instant_of(wall), UTC) == datetime(2025, 10, 4, 15, 30, tzinfo=UTC)
    twice = int(datetime(2025, 4, 6, 1, 45, tzinfo=UTC).timestamp())
    assert datetime.fromtimestamp(zone.instant_of(twice), UTC) == datetime(2025, 4, 5, 14, 45, tzinfo=UTC)
