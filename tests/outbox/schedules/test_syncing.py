"""Schedules from code: a sync makes the stored ones agree with what is declared, each change audited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import (
    Schedule,
    ScheduleRefused,
    add_schedule,
    get_schedule,
    list_schedules,
    run_schedule_now,
    run_schedule_now_async,
    sync_schedules,
    sync_schedules_async,
)
from support.database import Database

from .conftest import SAID, Audited, Report, daily, sync


def test_a_sync_makes_the_stored_ones_agree(database: Database, plan: Any, audited: Audited) -> None:
    """New ones are added, others changed, missing ones disabled and enabled again; what is the same is left alone."""
    plan.at("2026-05-01T12:00:00Z")
    done = sync(database, daily("a"), daily("b"))
    assert (done.added, done.changed, done.disabled) == (["a", "b"], {}, [])
    before = database.rows("SELECT xmin::text FROM {s}.schedules ORDER BY name")
    assert sync(database, daily("b"), daily("a")).unchanged == ["a", "b"]
    assert database.rows("SELECT xmin::text FROM {s}.schedules ORDER BY name") == before
    done = sync(database, daily("a", cron="0 3 * * *", payload=Report(account=2)), daily("c"))
    assert (done.added, done.changed, done.disabled) == (["c"], {"a": ["payload", "rule"]}, ["b"])
    assert sync(database, daily("a", cron="0 3 * * *", payload=Report(account=2)), daily("b"), daily("c")).enabled == [
        "b"
    ]
    assert [(what, name) for what, name, _, _ in audited()] == [
        ("schedule.add", "a"), ("schedule.add", "b"), ("schedule.change", "a"), ("schedule.disable", "b"),
        ("schedule.add", "c"), ("schedule.enable", "b"),
    ]  # fmt: skip
    assert {(by, reason) for _, _, by, reason in audited()} == {("ann", "a test")}
    assert database.count("audit WHERE detail::text LIKE '%account%'") == 0


def test_what_a_sync_leaves_alone_has_its_turns_meanwhile(database: Database, plan: Any) -> None:
    """However long its transaction stays open: it holds what it changes, and no schedule that is as it was declared."""
    plan.at("2026-05-01T12:00:00Z")
    same = Schedule(name="same", payload=Report(), every=60)
    sync(
        database,
        same,
        Schedule(name="other", payload=Report(), every=60),
        Schedule(name="gone", payload=Report(), every=60),
    )
    sync(database, same, Schedule(name="other", payload=Report(), every=60))
    plan.turns()
    plan.at("2026-05-01T12:01:00Z")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        changed = Schedule(name="other", payload=Report(account=2), every=60)
        done = sync_schedules(connection, [same, changed], source="billing", **SAID)
        assert (done.unchanged, done.changed, done.disabled) == (["same"], {"other": ["payload"]}, [])
        assert [turn.name for turn in plan.turns()] == ["same"]
    assert [turn.name for turn in plan.turns()] == ["other"]


def test_a_disabled_one_makes_nothing_and_makes_nothing_up(database: Database, plan: Any) -> None:
    """What would have come while it was not declared is left out; it goes on with what comes."""
    plan.at("2026-05-01T12:00:00Z")
    every = Schedule(name="m", payload=Report(), every=60, missed="all")
    sync(database, every)
    plan.turns()
    plan.at("2026-05-01T12:01:00Z")
    plan.turns()
    sync(database)
    plan.at("2026-05-01T12:05:00Z")
    assert plan.turns() == []
    sync(database, every)
    plan.turns()
    plan.at("2026-05-01T12:06:00Z")
    plan.turns()
    assert plan.made("m") == ["2026-05-01T12:01:00Z", "2026-05-01T12:06:00Z"]


def test_a_preview_changes_nothing(database: Database, audited: Audited) -> None:
    """It says what would be done, and leaves the caller's transaction usable."""
    sync(database, daily("a"))
    with database.engine().begin() as connection:
        done = sync_schedules(connection, [daily("b")], source="billing", preview=True, **SAID)
        assert (done.added, done.disabled) == (["b"], ["a"])
        assert [view.name for view in list_schedules(connection)] == ["a"]
    assert len(audited()) == 1


def test_sources_keep_to_their_own(database: Database) -> None:
    """A sync touches no schedule of another source or of a person, and takes no name of theirs; all or nothing."""
    sync(database, daily("a"))
    with database.engine().begin() as connection:
        add_schedule(connection, daily("mine"), **SAID)
    assert sync(database, daily("z"), source="other").added == ["z"]
    sync(database, source="other")
    for taken, told in (
        ("a", "belongs to the source 'billing', which has to leave it out and sync first"),
        ("mine", "was added by a person"),
        ("z", "belongs to the source 'other', which does not declare it any more"),
    ):
        with pytest.raises(ScheduleRefused, match=told) as caught:
            sync(database, daily("0-new"), daily(taken), source="third")
        assert f"`outbox schedules remove {taken}`" in str(caught.value)
    with database.engine().connect() as connection:
        assert [(view.name, view.source, view.state) for view in list_schedules(connection)] == [
            ("a", "billing", "active"), ("mine", "operator", "active"), ("z", "other", "disabled"),
        ]  # fmt: skip
        assert [view.name for view in list_schedules(connection, source="other")] == ["z"]


def test_nothing_is_written_of_a_sync_that_is_refused(database: Database) -> None:
    """One that was made to be bad after all, or a name twice, and none is stored."""
    meddled = daily("b")
    object.__setattr__(meddled, "cron", "* * * *")
    for bad in (meddled, daily("a")):
        with pytest.raises(ScheduleRefused):
            sync(database, daily("a"), bad)
    with pytest.raises(ScheduleRefused, match="source"):
        sync(database, source="operator")
    assert database.count("schedules") == 0
    with database.engine().begin() as connection:
        add_schedule(connection, daily("a"), **SAID)
        with pytest.raises(ScheduleRefused, match="taken"):
            add_schedule(connection, daily("a", cron="0 3 * * *"), **SAID)
    assert database.value("SELECT rule FROM {s}.schedules") == "0 2 * * *"


def test_works_under_any_isolation_and_with_a_session(database: Database) -> None:
    """The functions take what `enqueue` takes, whatever its isolation."""
    engine = database.engine().execution_options(isolation_level="SERIALIZABLE")
    with sa.orm.Session(engine) as session, session.begin():
        sync_schedules(session, [daily("a")], source="billing", **SAID)
        assert run_schedule_now(session, "a", **SAID).created
        assert get_schedule(session, "a").state == "active"


def test_the_async_twins_do_the_same(database: Database) -> None:
    """What async services sync and run, they sync and run in their own transaction."""

    async def use() -> tuple[list[str], bool]:
        engine = create_async_engine(database.driver_url("psycopg"))
        try:
            async with engine.begin() as connection:
                done = await sync_schedules_async(connection, [daily("a")], source="billing", **SAID)
                ref = await run_schedule_now_async(connection, "a", **SAID)
                return done.added, ref.created
        finally:
            await engine.dispose()

    assert asyncio.run(use()) == (["a"], True)
    assert (database.count("schedules"), database.count("jobs")) == (1, 1)
