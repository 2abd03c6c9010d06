"""Relays that have their turn of a schedule just as its plan ends: each occurrence is made once, by whichever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from outbox import Schedule, change_schedule
from outbox.schedules.turns import take_turn
from support.database import Database
from support.waiting import until

from .conftest import SAID, Report
from .test_last_turns import WAYS, declare, one, pause, resume, way_of

pytestmark = pytest.mark.usefixtures("sound")

NINE = "2026-05-01T09:00:00Z"


def waits(database: Database) -> bool:
    """Tell whether a session of this database waits for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(database.rows(query))


def before_nine(plan: Any, database: Database) -> None:
    """Declare the schedule, and let nine o'clock come."""
    plan.at("2026-05-01T08:59:50+00:00")
    declare(database, one())
    plan.turns()
    plan.at("2026-05-01T09:00:05+00:00")


@pytest.mark.parametrize("way", WAYS)
def test_a_turn_under_way_is_waited_for(plan: Any, database: Database, way: str) -> None:
    """Who ends the plan finds that the relay has seen to it."""
    end, begin, then = way_of(way)
    before_nine(plan, database)
    engine = database.engine(poolclass=sa.NullPool)

    def finish() -> None:
        with engine.begin() as connection:
            end(connection, then)

    with ThreadPoolExecutor(1) as pool:
        ending: list[Any] = []

        def meanwhile() -> None:
            ending.append(pool.submit(finish))
            until(lambda: waits(database), within_s=20)

        turn = take_turn(database.link("test/relay"), meanwhile)
        ending[0].result()
    with engine.begin() as connection:
        begin(connection, then)
    plan.turns()
    assert turn is not None
    assert (turn.made, plan.made(), plan.row()["made"]) == (1, [NINE], 1)
    assert database.count("audit WHERE detail ? 'last_turn'") == 0


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_relay_passes_over_what_is_just_ended(plan: Any, database: Database, way: str, commits: bool) -> None:
    """The last turn stands or falls with its transaction: if that is rolled back, a relay makes what has come."""
    end, begin, then = way_of(way)
    before_nine(plan, database)
    engine = database.engine(poolclass=sa.NullPool)
    with engine.connect() as connection:
        end(connection, then)
        assert plan.turns() == []
        (connection.commit if commits else connection.rollback)()
    plan.turns()
    if commits:
        with engine.begin() as connection:
            begin(connection, then)
        plan.turns()
    assert (plan.made(), plan.row()["made"], plan.row()["passed_over"]) == ([NINE], 1, 0)


def test_three_relays_beside_changes_make_each_once(plan: Any, database: Database) -> None:
    """While a person pauses, resumes and changes it by turns, each minute but those of the pauses has its job."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    plan.turns()
    engine = database.engine()
    barrier = threading.Barrier(4, timeout=60)

    def relay(number: int) -> None:
        link = database.link(f"test/relay-{number}")
        for _ in range(12):
            barrier.wait()
            while take_turn(link) is not None:
                pass
            barrier.wait()

    with ThreadPoolExecutor(3) as pool:
        relays = [pool.submit(relay, number) for number in range(3)]
        for minute in range(1, 13):
            plan.at(f"2026-05-01T12:{minute:02}:01+00:00")
            barrier.wait()
            with engine.begin() as connection:
                (resume if minute % 3 == 0 else pause if minute % 3 == 2 else _change(minute))(connection, one())
            barrier.wait()
        for done in relays:
            done.result()
    plan.turns()
    paused = {minute for minute in range(1, 13) if minute % 3 == 0}
    assert [int(key[14:16]) for key in plan.made()] == [n for n in range(1, 13) if n not in paused]
    assert (plan.row()["made"], plan.row()["passed_over"]) == (8, 0)


def test_the_plan_holds_until_it_is_held(plan: Any, database: Database) -> None:
    """Who waits for a relay's turn, which then breaks off, finds what has come meanwhile to be the old plan's, too."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(missed="all")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    engine = database.engine(poolclass=sa.NullPool)

    def finish() -> None:
        with engine.begin() as connection:
            pause(connection, one())

    with ThreadPoolExecutor(1) as pool:
        ending: list[Any] = []

        def meanwhile() -> None:
            ending.append(pool.submit(finish))
            until(lambda: waits(database), within_s=20)
            plan.at("2026-05-01T12:02:05+00:00")
            database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test/cut'")

        with pytest.raises(psycopg.OperationalError):
            take_turn(database.link("test/cut"), meanwhile)
        ending[0].result()
    with engine.begin() as connection:
        resume(connection, one())
    plan.turns()
    assert [key[11:16] for key in plan.made()] == ["12:01", "12:02"]


def _change(minute: int) -> Any:
    def act(connection: sa.Connection, then: Schedule) -> None:
        ends = datetime.fromisoformat(f"2027-01-01T00:{minute:02}:00+00:00")
        changed = Schedule(name=then.name, payload=Report(), every=60, ends_at=ends)
        change_schedule(connection, changed, **SAID)

    return act
