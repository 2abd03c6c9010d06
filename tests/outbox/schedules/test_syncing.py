"""Schedules from code and from people: added, changed, disabled, paused, run and removed, each audited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import (
    JobState,
    Schedule,
    ScheduleNotFound,
    ScheduleRefused,
    add_schedule,
    change_schedule,
    get_schedule,
    list_schedules,
    pause_schedule,
    preview_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule_now,
    run_schedule_now_async,
    sync_schedules,
    sync_schedules_async,
)
from outbox.doctor import examine, mend
from outbox.schedules import syncing
from outbox.schedules.contents import plain_content
from outbox.schedules.declaring import checked
from outbox_schemas import NameRefused, PayloadError, occurrence_of
from support.database import Database
from support.sealing import ring, using
from support.waiting import until

from .conftest import SAID, Report


class Secret(Report):
    """One that is stored sealed."""

    kind = "test.secret"
    sealed = True


def daily(name: str, **terms: Any) -> Schedule:
    """Return a schedule at two in Berlin."""
    return Schedule(**{"name": name, "payload": Report(), "cron": "0 2 * * *", "time_zone": "Europe/Berlin"} | terms)


def sync(database: Database, *schedules: Schedule, source: str = "billing", **options: Any) -> Any:
    """Sync in a transaction of its own."""
    with database.engine().begin() as connection:
        return sync_schedules(connection, schedules, source=source, **SAID, **options)


Audited = Callable[[], list[tuple[str, str, str, str]]]


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
    for taken in ("a", "mine"):
        with pytest.raises(ScheduleRefused, match="belongs to the source"):
            sync(database, daily("0-new"), daily(taken), source="third")
    with database.engine().connect() as connection:
        assert [(view.name, view.source, view.state) for view in list_schedules(connection)] == [
            ("a", "billing", "active"), ("mine", "operator", "active"), ("z", "other", "active"),
        ]  # fmt: skip
        assert [view.name for view in list_schedules(connection, source="other")] == ["z"]


def test_many_processes_may_sync_at_once(database: Database) -> None:
    """Instances that start together end well, and each schedule is there once."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(4, timeout=60)
    engine = database.engine()

    def start(number: int) -> None:
        try:
            barrier.wait()
            for turn in range(5):
                declared = [daily(f"s{n}", priority=(number + turn) % 3) for n in range(10 if turn % 2 else 7)]
                with engine.begin() as connection:
                    sync_schedules(connection, declared[::-1] if number % 2 else declared, source="billing", **SAID)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    assert database.count("schedules") == 10


def waits_for_a_lock(database: Database) -> bool:
    """Tell whether a session of this database waits for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(database.rows(query))


def test_of_two_syncs_at_once_the_last_stands_as_a_whole(database: Database) -> None:
    """It changes back what it would have left alone before the other one, and disables what that has added."""
    sync(database, daily("a"), daily("b"), daily("c"))
    sync(database, daily("a"), daily("b"))
    engine = database.engine(poolclass=sa.NullPool)
    last: list[Any] = []
    with engine.begin() as connection:
        other = [daily(name, priority=2) for name in "abcd"]
        assert sync_schedules(connection, other, source="billing", **SAID).added == ["d"]
        thread = threading.Thread(target=lambda: last.append(sync(database, daily("a", priority=1), daily("b"))))
        thread.start()
        until(lambda: waits_for_a_lock(database))
    thread.join(60)
    (done,) = last
    assert (sorted(done.changed), done.disabled, done.unchanged) == (["a", "b"], ["c", "d"], [])
    with engine.connect() as connection:
        stored = [(view.name, view.priority, view.state) for view in list_schedules(connection)]
    assert stored[:2] == [("a", 1, "active"), ("b", 0, "active")]
    assert [state for _, _, state in stored[2:]] == ["disabled", "disabled"]


def test_a_sync_waits_for_none_of_another_source(database: Database) -> None:
    """Nor for one in another schema; nor do two syncs of a source in one transaction wait for each other."""
    engine = database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        sync_schedules(connection, [daily("a")], source="billing", **SAID)
        assert sync_schedules(connection, [daily("a")], source="billing", **SAID).unchanged == ["a"]
        with engine.begin() as other:
            other.execute(sa.text("SET LOCAL lock_timeout = '10s'"))
            assert sync_schedules(other, [daily("z")], source="other", **SAID).added == ["z"]
    keys = {syncing._lock_key(schema, source) for schema in ("outbox", "second") for source in ("billing", "other")}
    assert len(keys) == 4
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_a_sync_of_an_older_snapshot_fails_where_another_has_changed_what_it_declares(database: Database) -> None:
    """Instead of saying that it agrees with what has not been so any more."""
    sync(database, daily("a"))
    engine = database.engine(poolclass=sa.NullPool, isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        assert [view.priority for view in list_schedules(connection)] == [0]
        sync(database, daily("a", priority=2))
        with pytest.raises(sa.exc.OperationalError, match="could not serialize"):
            sync_schedules(connection, [daily("a")], source="billing", **SAID)


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


REFUSED = [
    ({"name": "a@b"}, "name"), ({"name": ""}, "name"), ({"name": "x" * 101}, "name"), ({"cron": "0 0 31 2 *"}, "cron"),
    ({"cron": None}, "cron"), ({"every": 5}, "cron"), ({"cron": "every 5s"}, "cron"),
    ({"cron": None, "every": 0}, "every"),
    ({"time_zone": "America/New_Yrok"}, "time_zone"), ({"tenant": ""}, "tenant"), ({"priority": 101}, "priority"),
    ({"missed": "some"}, "missed"), ({"missed": None}, "missed"), ({"missed_limit": 0}, "missed_limit"),
    ({"missed_limit": 10_001}, "missed_limit"), ({"grace": -1}, "grace"), ({"grace": timedelta(days=2)}, "grace"),
    ({"jitter": 0.5}, "jitter"), ({"jitter": "5"}, "jitter"), ({"starts_at": datetime(2026, 1, 1)}, "starts_at"),  # noqa: DTZ001
    ({"ends_at": "tomorrow"}, "ends_at"),
    ({"starts_at": datetime(2026, 1, 2, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)}, "ends_at"),
    ({"payload": Secret()}, "payload"), ({"payload": {"account": 1}}, "payload"), ({"payload": None}, "payload"),
]  # fmt: skip


@pytest.mark.parametrize(("terms", "field"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_term_that_cannot_be_is_refused_with_its_field(terms: dict[str, Any], field: str) -> None:
    """Where it is written down, in one line that names the field."""
    with pytest.raises((ScheduleRefused, NameRefused, PayloadError)) as caught:
        Schedule(**{"name": "a", "payload": Report(), "cron": "0 2 * * *"} | terms)
    assert caught.value.field == field


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


def test_where_all_is_sealed_no_schedule_lies_in_clear() -> None:
    """Keys that seal every payload refuse schedules, with or without a class."""
    with using(ring("k1", seal_all=True)):
        with pytest.raises(PayloadError, match="in clear"):
            checked(daily("a"))
        with pytest.raises(PayloadError, match="in clear"):
            plain_content({}, kind="k")


def test_the_class_and_the_plain_object_store_the_same() -> None:
    """A payload by its class and the same object by hand have one digest, so that neither looks changed."""
    mine = checked(daily("a"))
    plain = plain_content({"account": 1}, kind="test.report", queue="notes")
    assert (plain.payload, plain.digest, plain.kind, plain.queue) == (mine.payload, mine.digest, mine.kind, mine.queue)


@pytest.mark.parametrize("n", [0, -1, 1001, True, "3"])
def test_a_preview_is_bounded(n: Any) -> None:
    """One to a thousand occurrences."""
    with pytest.raises(ScheduleRefused, match=r"^n: "):
        preview_schedule(cron="* * * * *", after=datetime(2026, 1, 1, tzinfo=UTC), n=n)


def test_a_preview_refuses_an_end_before_the_start() -> None:
    """As the schedule itself is refused, where an empty preview would say that it is merely over."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(ScheduleRefused, match=r"^ends_at: "):
        preview_schedule(cron="* * * * *", after=noon, starts_at=noon, ends_at=noon - timedelta(hours=1))


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
