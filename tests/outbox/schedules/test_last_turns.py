"""What has come of a plan, and no relay has seen to, when that plan ends: made once, or passed over and counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import (
    NameRefused,
    Schedule,
    change_schedule,
    list_schedules,
    pause_schedule,
    resume_schedule,
    sync_schedules,
)
from outbox.schedules import last_turns
from support.database import Database
from support.targets import WAYS as WAYS_TO_CALL
from support.targets import Caller, run_with

from .conftest import SAID, Report
from .test_superseding_occurrences import About

pytestmark = pytest.mark.usefixtures("sound")

NINE: dict[str, Any] = {"cron": "0 9 * * *", "time_zone": "UTC"}
FAR = "2027-01-01T00:00:00+00:00"


def declare(database: Database, *schedules: Schedule) -> Any:
    """Sync in a transaction of its own."""
    with database.engine().begin() as connection:
        return sync_schedules(connection, schedules, source="billing", **SAID)


def one(**terms: Any) -> Schedule:
    """Return the schedule of these tests."""
    return Schedule(**{"name": "nightly", "payload": Report()} | NINE | terms)


def pause(connection: sa.Connection, then: Schedule) -> None:
    """End the plan by a pause."""
    assert pause_schedule(connection, then.name, **SAID)


def resume(connection: sa.Connection, then: Schedule) -> None:
    """Go on after it."""
    assert resume_schedule(connection, then.name, **SAID)


def disable(connection: sa.Connection, then: Schedule) -> None:
    """End the plan by declaring nothing."""
    assert sync_schedules(connection, [], source="billing", **SAID).disabled == [then.name]


def sync(connection: sa.Connection, then: Schedule) -> None:
    """Declare other terms, or the same ones after nothing."""
    done = sync_schedules(connection, [then], source="billing", **SAID)
    assert done.changed or done.enabled


def nothing(connection: sa.Connection, then: Schedule) -> None:
    """Leave it."""


Act = Callable[[sa.Connection, Schedule], None]
WAYS: dict[str, tuple[Act, Act, dict[str, Any]]] = {
    "pause": (pause, resume, {}),
    "disable": (disable, sync, {}),
    "rule": (sync, nothing, {"cron": "0 9,23 * * *"}),
    "zone": (sync, nothing, {"time_zone": "Africa/Abidjan"}),
    "start": (sync, nothing, {"starts_at": "2026-01-01T00:00:00+00:00"}),
    "end": (sync, nothing, {"ends_at": FAR}),
}


def way_of(name: str) -> tuple[Act, Act, Schedule]:
    """Return what ends the plan, what lets it go on, and the terms from then on."""
    end, begin, changed = WAYS[name]
    instants = {"starts_at", "ends_at"}
    return end, begin, one(**{key: _instant(value) if key in instants else value for key, value in changed.items()})


@pytest.mark.parametrize("way", WAYS)
def test_what_has_come_before_is_made_once(plan: Any, database: Database, way: str) -> None:
    """Relays are stopped over nine o'clock, and the plan ends meanwhile: nine is made all the same, and so is the next
    day's.
    """
    end, begin, then = way_of(way)
    plan.at("2026-05-01T08:59:50+00:00")
    declare(database, one())
    plan.turns()
    plan.at("2026-05-01T09:00:05+00:00")
    with database.engine().begin() as connection:
        end(connection, then)
    plan.at("2026-05-01T09:00:20+00:00")
    plan.turns()
    with database.engine().begin() as connection:
        begin(connection, then)
    plan.turns()
    assert plan.made() == ["2026-05-01T09:00:00Z"]
    row = plan.row()
    assert (row["made"], row["passed_over"], row["last_at"]) == (1, 0, _instant("2026-05-01T09:00:00+00:00"))
    plan.at("2026-05-02T09:00:00+00:00")
    plan.turns()
    assert plan.made()[-1] == "2026-05-02T09:00:00Z"
    details = database.rows("SELECT detail -> 'last_turn' FROM {s}.audit ORDER BY id")
    assert [detail for (detail,) in details if detail] == [{"made": 1}]


def test_what_a_person_changes_has_its_turn_too(plan: Any, database: Database) -> None:
    """By the terms that it had, with the old payload. A change that leaves the plan leaves what has come to a relay."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add("rule")
    plan.add("payload")
    plan.turns()
    plan.at("2026-05-01T12:01:05+00:00")
    with database.engine().begin() as connection:
        for name, every in (("rule", 3600), ("payload", 60)):
            change_schedule(connection, Schedule(name=name, payload=Report(account=2), every=every), **SAID)
    assert (plan.made("rule"), plan.made("payload")) == (["2026-05-01T12:01:00Z"], [])
    plan.turns()
    assert plan.made("payload") == ["2026-05-01T12:01:00Z"]
    accounts = "SELECT payload ->> 'account' FROM {s}.jobs ORDER BY logical_key"
    assert [account for (account,) in database.rows(accounts)] == ["2", "1"]


@pytest.mark.parametrize(
    ("missed", "made", "passed_over"),
    [("skip", ["20"], 19), ("latest", ["20"], 19), ("all", ["17", "18", "19", "20"], 16)],
)
def test_what_was_missed_goes_by_the_policy(
    plan: Any, database: Database, missed: str, made: list[str], passed_over: int
) -> None:
    """As by a relay's turn: what is in time is made, what is late by the schedule's word, and the rest is counted."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(missed=missed, missed_limit=3, grace=10)
    plan.turns()
    plan.at("2026-05-01T12:20:05+00:00")
    with database.engine().begin() as connection:
        pause(connection, one())
    assert [key[14:16] for key in plan.made()] == made
    assert plan.row()["passed_over"] == passed_over


def test_a_long_absence_is_made_up_for_within_bounds(
    plan: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than one transaction should make the last are made, and the others counted."""
    monkeypatch.setattr(last_turns, "MOST_AT_LAST", 5)
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(missed="all", grace=180)
    plan.turns()
    plan.at("2026-05-01T12:20:05+00:00")
    with database.engine().begin() as connection:
        pause(connection, one())
        resume(connection, one())
    plan.turns()
    assert [key[14:16] for key in plan.made()] == ["16", "17", "18", "19", "20"]
    assert (plan.row()["made"], plan.row()["passed_over"]) == (5, 15)


def test_nothing_is_due_of_one_that_is_paused_or_new(plan: Any, database: Database) -> None:
    """What came while it was paused was not to come, whatever else is done to it; nor did anything before its start."""
    plan.at("2026-05-01T08:00:00+00:00")
    declare(database, one())
    with database.engine().begin() as connection:
        pause(connection, one())
    plan.at("2026-05-01T09:00:05+00:00")
    with database.engine().begin() as connection:
        sync(connection, one(cron="0 10 * * *"))
        disable(connection, one())
        sync(connection, one())
        resume(connection, one())
    plan.turns()
    assert plan.made() == []
    plan.at("2026-05-02T09:00:00+00:00")
    plan.turns()
    assert plan.made() == ["2026-05-02T09:00:00Z"]


def test_an_interval_goes_on_in_another_zone(plan: Any, database: Database) -> None:
    """It is real time in any: the plan stays, and makes up for what it has missed."""
    plan.at("2026-05-01T12:00:00+00:00")
    declare(database, Schedule(name="nightly", payload=Report(), every=60, missed="all"))
    plan.turns()
    plan.at("2026-05-01T12:03:05+00:00")
    moved = Schedule(name="nightly", payload=Report(), every=60, missed="all", time_zone="Asia/Tokyo")
    assert declare(database, moved).changed == {"nightly": ["time_zone"]}
    assert plan.made() == []
    plan.turns()
    assert [key[11:16] for key in plan.made()] == ["12:01", "12:02", "12:03"]


def test_a_broken_one_makes_nothing_and_says_so(plan: Any, database: Database) -> None:
    """A rule that means nothing tells what had come no more; what can't be made is counted as passed over."""
    plan.at("2026-05-01T08:00:00+00:00")
    declare(database, one(name="a-rule"), one(name="b-payload"))
    plan.turns()
    database.rows("UPDATE {s}.schedules SET rule = '0 0 31 2 *' WHERE name = 'a-rule'")
    sealed = "UPDATE {s}.schedules SET payload = %s, payload_digest = NULL WHERE name = 'b-payload'"
    database.rows(sealed, '{"$sealed": "1:a:b:c"}')
    plan.at("2026-05-01T09:00:05+00:00")
    done = declare(database, one(name="a-rule", cron="0 10 * * *"), one(name="b-payload", cron="0 10 * * *"))
    assert done.broken.keys() == done.changed.keys() == {"a-rule", "b-payload"}
    assert "never comes" in done.broken["a-rule"]
    assert "is sealed" in done.broken["b-payload"]
    assert [plan.row(name)["passed_over"] for name in ("a-rule", "b-payload")] == [0, 1]
    told = dict(database.rows("SELECT subject, detail -> 'last_turn' FROM {s}.audit WHERE action = 'schedule.change'"))
    assert told == {
        "a-rule": {"error": done.broken["a-rule"]},
        "b-payload": {"error": done.broken["b-payload"], "passed_over": 1},
    }
    with database.engine().connect() as connection:
        assert [view.state for view in list_schedules(connection)] == ["active", "broken"]
    plan.at("2026-05-01T10:00:00+00:00")
    plan.turns()
    assert plan.made("a-rule") == plan.made("b-payload") == ["2026-05-01T10:00:00Z"]
    assert plan.row("b-payload")["broken_at"] is None


def test_what_supersedes_needs_to_see_what_waits(plan: Any, database: Database) -> None:
    """Above READ COMMITTED it would end nothing that has come since the snapshot: refused, and nothing is changed."""
    plan.at("2026-05-01T08:00:00+00:00")
    terms: dict[str, Any] = {"payload": About(), "supersedes": True}
    declare(database, one(**terms))
    plan.turns()
    plan.at("2026-05-01T09:00:05+00:00")
    strict = database.engine(isolation_level="SERIALIZABLE")
    with pytest.raises(NameRefused, match="supersedes: needs a transaction at READ COMMITTED"), strict.begin() as held:
        pause(held, one())
    plan.turns()
    with strict.begin() as held:
        pause(held, one())
    assert plan.made() == ["2026-05-01T09:00:00Z"]


_REFUSING = """
CREATE FUNCTION public.no_reports() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no reports'; END $$;
CREATE TRIGGER no_reports BEFORE INSERT ON {s}.jobs FOR EACH ROW WHEN (NEW.kind = 'test.report')
  EXECUTE FUNCTION public.no_reports()
"""


@pytest.mark.parametrize("way", WAYS_TO_CALL, ids="-".join)
def test_any_caller_may_end_a_plan(plan: Any, database: Database, way: tuple[str, str]) -> None:
    """Sessions, connections and their async twins, on each driver: what was due supersedes what waits; where the
    database refuses a job, that is told and counted, and the transaction goes on.
    """
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add("good", payload=About(), supersedes=True)
    plan.add("refused")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    plan.turns()
    database.rows(_REFUSING)
    plan.at("2026-05-01T12:02:05+00:00")

    async def body(caller: Caller) -> None:
        for name in ("good", "refused"):

            def act(target: Any, name: str = name) -> bool:
                return pause_schedule(target, name, **SAID)

            assert await caller.target.run_sync(act) if caller.is_async else act(caller.target)
        await caller.commit()

    run_with(database, way, body)
    states = "SELECT logical_key, state FROM {s}.jobs WHERE logical_key LIKE 'good@%' ORDER BY logical_key"
    assert [state for _, state in database.rows(states)] == ["cancelled", "ready"]
    row = plan.row("refused")
    assert (row["made"], row["passed_over"], row["paused"]) == (1, 1, True)
    assert "no reports" in row["last_error"]


def test_a_preview_makes_nothing(plan: Any, database: Database) -> None:
    """It says what would be done, and leaves what has come to a relay."""
    plan.at("2026-05-01T08:00:00+00:00")
    declare(database, one())
    plan.turns()
    plan.at("2026-05-01T09:00:05+00:00")
    with database.engine().begin() as connection:
        done = sync_schedules(connection, [one(cron="0 10 * * *")], source="billing", preview=True, **SAID)
    assert (done.changed, plan.made()) == ({"nightly": ["rule"]}, [])
    plan.turns()
    assert plan.made() == ["2026-05-01T09:00:00Z"]


def test_no_moment_lies_between_two_plans(plan: Any, database: Database) -> None:
    """What comes after the schedule is held, and before its new terms are written, belongs to the new plan."""
    plan.at("2026-05-01T08:59:59+00:00")
    declare(database, one())
    plan.turns()
    engine = database.engine()

    @sa.event.listens_for(engine, "before_cursor_execute")
    def strike(*call: Any) -> None:
        if "disabled_at = NULL" in call[2]:
            plan.at("2026-05-01T09:00:00.500000+00:00")

    with engine.begin() as connection:
        sync(connection, one(ends_at=_instant(FAR)))
    plan.turns()
    assert plan.made() == ["2026-05-01T09:00:00Z"]


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
