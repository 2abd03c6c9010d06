"""Schedules and people: changed, paused, run now and removed, each audited."""

from __future__ import annotations

from typing import Any

import pytest

from outbox import (
    JobState,
    Schedule,
    ScheduleNotFound,
    ScheduleRefused,
    change_schedule,
    get_schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule_now,
)
from outbox_schemas import occurrence_of
from support.database import Database

from .conftest import SAID, Audited, Report, daily, sync


def test_a_change_of_the_rule_begins_anew_and_other_changes_do_not(database: Database, plan: Any) -> None:
    """A new rule makes nothing of what lies behind, which is the old one's; a new payload leaves what was missed to a
    relay.
    """
    plan.at("2026-05-01T12:00:00Z")
    plan.add("rule", missed="all")
    plan.add("payload", missed="all")
    plan.turns()
    plan.at("2026-05-01T12:03:00Z")
    with database.engine().begin() as connection:
        terms = {"missed": "all", "payload": Report()}
        assert change_schedule(connection, Schedule(name="rule", every=30, **terms), **SAID) == ["rule"]
        terms["payload"] = Report(account=5)
        assert change_schedule(connection, Schedule(name="payload", every=60, **terms), **SAID) == ["payload"]
        assert change_schedule(connection, Schedule(name="payload", every=60, **terms), **SAID) == []
    assert plan.made("payload") == []
    plan.turns()
    for name, account in (("rule", "1"), ("payload", "5")):
        assert [key[11:] for key in plan.made(name)] == ["12:01:00Z", "12:02:00Z", "12:03:00Z"]
        accounts = "SELECT DISTINCT payload->>'account' FROM {s}.jobs WHERE logical_key LIKE %s"
        assert database.rows(accounts, f"{name}@%") == [(account,)]


def test_a_pause_is_a_pause(database: Database, plan: Any, audited: Audited) -> None:
    """While it lasts nothing is made, and nothing is made up for; a sync leaves it; asking twice changes nothing."""
    plan.at("2026-05-01T12:00:00Z")
    every = Schedule(name="m", payload=Report(), every=60, missed="all")
    sync(database, every)
    plan.turns()
    with database.engine().begin() as connection:
        assert pause_schedule(connection, "m", **SAID)
        assert not pause_schedule(connection, "m", **SAID)
    plan.at("2026-05-01T12:05:00Z")
    sync(database, every)
    assert plan.turns() == []
    with database.engine().begin() as connection:
        assert get_schedule(connection, "m").state == "paused"
        assert resume_schedule(connection, "m", **SAID)
        assert not resume_schedule(connection, "m", **SAID)
    plan.turns()
    plan.at("2026-05-01T12:06:00Z")
    plan.turns()
    assert plan.made("m") == ["2026-05-01T12:06:00Z"]
    assert [what for what, *_ in audited()] == ["schedule.add", "schedule.pause", "schedule.resume"]


def test_run_now_is_one_more_job_and_moves_no_plan(database: Database, plan: Any, audited: Audited) -> None:
    """Each asks for a job of its own, due at once, also while it is paused; with a rollback there is none."""
    now = plan.at("2026-05-01T12:00:00Z")
    plan.add()
    plan.turns()
    planned = plan.row()
    engine = database.engine()
    with engine.begin() as connection:
        pause_schedule(connection, "nightly", **SAID)
        first = run_schedule_now(connection, "nightly", **SAID)
        second = run_schedule_now(connection, "nightly", **SAID)
    with engine.connect() as connection:
        run_schedule_now(connection, "nightly", **SAID)
        connection.rollback()
    assert (first.created, second.created, first.state) == (True, True, JobState.READY)
    keys = [key for (key,) in database.rows("SELECT logical_key FROM {s}.jobs")]
    assert len(keys) == len(set(keys)) == 2
    assert {occurrence_of(key) for key in keys} == {("nightly", now, True)}
    assert {name: plan.row()[name] for name in ("next_at", "after_at", "made")} == {
        name: planned[name] for name in ("next_at", "after_at", "made")
    }
    assert [what for what, *_ in audited()] == ["schedule.add", "schedule.pause", "schedule.run", "schedule.run"]


def test_removing_is_for_what_nobody_declares(database: Database, plan: Any) -> None:
    """A person's can be removed, and a disabled one; one that is declared would come back, and is refused."""
    plan.at("2026-05-01T12:00:00Z")
    plan.add()
    sync(database, daily("a"))
    engine = database.engine()
    with pytest.raises(ScheduleRefused, match="declared by 'billing'"), engine.begin() as connection:
        remove_schedule(connection, "a", **SAID)
    with pytest.raises(ScheduleRefused, match="declared by 'billing'"), engine.begin() as connection:
        change_schedule(connection, daily("a"), **SAID)
    sync(database)
    with pytest.raises(ScheduleRefused, match="is disabled"), engine.begin() as connection:
        run_schedule_now(connection, "a", **SAID)
    with engine.begin() as connection:
        remove_schedule(connection, "a", **SAID)
        remove_schedule(connection, "nightly", **SAID)
        assert list_schedules(connection) == []
    for act in (remove_schedule, pause_schedule, resume_schedule, run_schedule_now):
        with pytest.raises(ScheduleNotFound, match="nightly"), engine.begin() as connection:
            act(connection, "nightly", **SAID)
