"""Schedules and the doctor: what is broken, overdue, unreadable, or ahead of its time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from outbox import (
    Schedule,
    change_schedule,
)
from outbox.doctor import examine, mend
from support.database import Database

from .conftest import SAID, Audited, Report


def test_the_doctor_has_a_schedule_go_on_after_the_clock_was_ahead(
    database: Database, plan: Any, audited: Audited
) -> None:
    """Set ahead for a day and back, it would be silent for that day; a person has it go on, and nothing comes twice."""
    plan.at("2026-05-01T12:00:00Z")
    plan.add("minutely")
    plan.add("later")
    plan.turns()
    plan.at("2026-05-02T12:00:01Z")
    with database.engine().begin() as connection:
        change_schedule(connection, Schedule(name="later", payload=Report(), every=120), **SAID)
    plan.turns()
    made = plan.made("minutely")
    plan.at("2026-05-01T12:01:00Z")
    assert plan.turns() == []
    report, done = mend(database.engine(), by="ann", reason="ntp")
    assert [[case.subject for case in found.cases] for found in report.disorders] == [["later", "minutely"]]
    assert [(item.code, item.names, item.job_ids) for item in done] == [("schedule_ahead", ["later", "minutely"], [])]
    assert ("doctor.mend", "later", "ann", "ntp") in audited()
    assert mend(database.engine(), by="ann", reason="ntp")[1] == []
    plan.at("2026-05-01T12:03:00Z")
    plan.turns()
    assert plan.made("minutely") == ["2026-05-01T12:02:00Z", "2026-05-01T12:03:00Z", *made]
    for text in ("2026-05-02T11:58:00Z", "2026-05-02T11:59:30Z", "2026-05-02T12:00:30Z"):
        plan.at(text)
        plan.turns()
    assert plan.made("minutely")[-1:] == made


def test_the_doctor_has_an_interval_go_on_that_was_added_while_the_clock_was_ahead(
    database: Database, plan: Any
) -> None:
    """It is counted from an instant that the clock reaches only in a month, and comes all the same."""
    plan.at("2026-06-01T12:00:20Z")
    plan.add("early")
    plan.add("first", starts_at=datetime(2026, 5, 1, 12, 2, 30, tzinfo=UTC))
    plan.turns()
    plan.at("2026-05-01T12:00:00Z")
    mend(database.engine(), by="ann", reason="ntp")
    plan.turns()
    for minute in (1, 2, 3):
        plan.at(f"2026-05-01T12:0{minute}:30Z")
        plan.turns()
    assert plan.made("early") == [f"2026-05-01T12:0{minute}:20Z" for minute in (1, 2, 3)]
    assert plan.made("first") == ["2026-05-01T12:02:30Z", "2026-05-01T12:03:30Z"]


def test_the_doctor_has_a_failed_schedule_tried_again_after_the_clock_was_ahead(
    database: Database, plan: Any, audited: Audited
) -> None:
    """Its next try lies where the clock was; its place doesn't, and stays: what it missed is made up for. Another that
    fails, by the clock as it is now, is left alone.
    """
    plan.at("2026-05-01T12:00:00Z")
    for name in ("broken", "failing", "good"):
        plan.add(name, every=3600)
    plan.turns()
    database.rows("UPDATE {s}.schedules SET time_zone = 'No/Where', wake_at = '-infinity' WHERE name = 'broken'")
    database.rows("UPDATE {s}.schedules SET failed_turns = 20 WHERE name IN ('broken', 'failing')")
    plan.at("2026-06-01T12:00:00Z")
    plan.turns(most=1)
    assert plan.row("broken")["failed_turns"] == 21
    database.rows("UPDATE {s}.schedules SET time_zone = 'UTC' WHERE name = 'broken'")
    database.rows("UPDATE {s}.schedules SET wake_at = '2026-05-01T15:10:00Z' WHERE name = 'failing'")
    plan.at("2026-05-01T14:10:00Z")
    report, done = mend(database.engine(), by="ann", reason="ntp")
    assert [[case.subject for case in found.cases] for found in report.disorders] == [["broken"]]
    assert "is looked at again at 2026-06-01" in report.disorders[0].cases[0].detail
    assert [(item.code, item.names) for item in done] == [("schedule_ahead", ["broken"])]
    assert ("doctor.mend", "broken", "ann", "ntp") in audited()
    assert plan.row("broken")["broken_at"] == datetime(2026, 5, 1, 14, 10, tzinfo=UTC)
    assert mend(database.engine(), by="ann", reason="ntp")[1] == []
    plan.turns()
    assert plan.made("broken") == ["2026-05-01T14:00:00Z"]
    assert plan.row("broken")["broken_at"] is None


def test_the_doctor_has_a_schedule_catch_up_after_the_clock_was_ahead(database: Database, plan: Any) -> None:
    """Set ahead while it caught up, it would have its next turn only there; it goes on where it stands. One that sleeps
    to what comes next is left alone.
    """
    plan.at("2026-05-01T12:00:00Z")
    plan.add("behind", missed="all", missed_limit=10_000)
    plan.add("yearly", cron="0 0 1 1 *", time_zone="Europe/Berlin")
    plan.add("over", ends_at=datetime(2026, 5, 1, 12, 1, tzinfo=UTC))
    plan.turns()
    plan.at("2026-05-02T12:00:00Z")
    while plan.row("behind")["made"] < 700:
        plan.turns(most=1)
    plan.at("2026-05-02T02:00:00Z")
    plan.turns()
    report, done = mend(database.engine(), by="ann", reason="ntp")
    assert [(item.code, item.names) for item in done] == [("schedule_ahead", ["behind", "over"])]
    assert "is looked at again at 2026-05-02 12:00:00" in report.disorders[0].cases[0].detail
    assert mend(database.engine(), by="ann", reason="ntp")[1] == []
    plan.turns()
    assert len(plan.made("behind")) == 14 * 60
    assert plan.row("behind")["passed_over"] == 0


def test_the_doctor_names_what_is_broken_overdue_and_unreadable(database: Database, plan: Any) -> None:
    """Each by its name, with what to do; what is paused or disabled is nobody's trouble."""
    plan.at("2026-05-01T12:00:00Z")
    plan.add("good")
    plan.add("late")
    plan.add("bad")
    plan.add("zone")
    plan.add("asleep")
    database.rows("UPDATE {s}.schedules SET rule = '0 0 31 2 *' WHERE name IN ('bad', 'asleep')")
    database.rows("UPDATE {s}.schedules SET paused = true WHERE name = 'asleep'")
    plan.turns()
    database.rows("UPDATE {s}.schedules SET time_zone = 'No/Where' WHERE name = 'zone'")
    plan.at("2026-05-01T13:00:00Z")
    database.rows("UPDATE {s}.schedules SET wake_at = {s}.clock() + interval '1 h' WHERE name <> 'late'")
    found = {disorder.check.code: disorder for disorder in examine(database.engine()).disorders}
    assert [case.subject for case in found["schedule_broken"].cases] == ["bad"]
    assert "never comes" in found["schedule_broken"].cases[0].detail
    assert [case.subject for case in found["schedule_overdue"].cases] == ["late"]
    assert [case.subject for case in found["schedule_unreadable"].cases] == ["bad", "zone"]
