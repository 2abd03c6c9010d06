"""Turns of schedules in a real database, whose clock is driven."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import psycopg
import pytest

from outbox import (
    Schedule,
    cancel,
    change_schedule,
    enqueue,
    find_job,
    pause_schedule,
    preview_schedule,
    resume_schedule,
)
from outbox.leases.leasing import Ability
from outbox.schedules.planning import delay_s
from outbox.schedules.turns import Patience, Turn, take_turn
from outbox_schemas import occurrence_of
from support.database import Database
from support.jobs import WORKER, release_all, take

from .conftest import SAID, Report

pytestmark = pytest.mark.usefixtures("sound")

_BY_HAND = """
INSERT INTO {s}.schedules (name, kind, tenant, version, queue, payload, rule, time_zone, created_at, updated_at)
SELECT v.name, v.kind, 'default', 1, 'notes', CAST(v.payload AS jsonb), v.rule, v.zone, {s}.clock(), {s}.clock()
FROM (VALUES (%s, %s, %s, %s, %s)) AS v(name, kind, payload, rule, zone)
"""


def by_hand(
    database: Database,
    name: str,
    rule: str = "* * * * *",
    zone: str = "UTC",
    kind: str = "test.report",
    payload: str = '{"account": 1}',
) -> None:
    """Insert a schedule by SQL, with the columns of the first release only."""
    database.rows(_BY_HAND, name, kind, payload, rule, zone)


def test_an_occurrence_is_one_job_like_any_other(plan: Any, database: Database) -> None:
    """It has the payload, the key and the terms that were declared, is due, runs, and knows which occurrence it is."""
    plan.at("2026-03-29T01:00:00Z")
    plan.add(cron="30 3 * * *", time_zone="Europe/Berlin", tenant="acme", priority=5)
    assert [turn.made for turn in plan.turns()] == [0]
    assert plan.row()["next_at"] == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    plan.at("2026-03-29T01:29:59Z")
    assert plan.turns() == []
    plan.at("2026-03-29T01:30:00Z")
    assert [turn.made for turn in plan.turns()] == [1]
    assert plan.turns() == []
    with database.engine().connect() as connection:
        job = find_job(connection, kind="test.report", logical_key="nightly@2026-03-29T01:30:00Z", tenant="acme")
    assert job is not None
    assert (job.priority, job.queue, job.run_at) == (5, "notes", datetime(2026, 3, 29, 1, 30, tzinfo=UTC))
    link = database.link()
    assert [hint.job_id for hint in release_all(link)] == [job.id]
    (claimed,) = take(link, [job.id], [Ability("test.report", 1, 60, 3, "h")], WORKER)
    assert occurrence_of(claimed.logical_key) == ("nightly", datetime(2026, 3, 29, 1, 30, tzinfo=UTC), False)
    assert claimed.payload_text.replace(" ", "") == '{"account":1}'
    assert plan.row()["made"] == 1


class About(Report):
    """Reports of which only the newest waits."""

    kind: ClassVar[str] = "test.about"

    def subject_key(self) -> str | None:
        """Return what it is about."""
        return "it"


class Rival(Report):
    """A report that is submitted under an occurrence's key."""

    def logical_key(self) -> str:
        """Return that key."""
        return "b-submitted@2026-05-01T12:02:00Z"


# Clock changes of Berlin, New York, Lord Howe (half an hour); instants in UTC.
CHANGES = [
    ("30 2 * * *", "Europe/Berlin", "2025-03-29", ["2025-03-29T01:30", "2025-03-30T01:00", "2025-03-31T00:30"]),
    ("30 2 * * *", "Europe/Berlin", "2025-10-25", ["2025-10-25T00:30", "2025-10-26T00:30", "2025-10-27T01:30"]),
    ("30 1 * * *", "America/New_York", "2025-11-01", ["2025-11-01T05:30", "2025-11-02T05:30", "2025-11-03T06:30"]),
    ("30 2 * * *", "America/New_York", "2025-03-08", ["2025-03-08T07:30", "2025-03-09T07:00", "2025-03-10T06:30"]),
    ("30 1 * * *", "Australia/Lord_Howe", "2025-04-04", ["2025-04-04T14:30", "2025-04-05T14:30", "2025-04-06T15:00"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2025-10-03", ["2025-10-03T15:45", "2025-10-04T15:30", "2025-10-05T15:15"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "zone", "start", "expected"), CHANGES)
def test_clock_changes_neither_skip_nor_double(
    plan: Any, rule: str, zone: str, start: str, expected: list[str]
) -> None:
    """A missing time comes right after the gap, a repeated one the first time; the preview says the same."""
    begun = plan.at(f"{start}T00:00:00+00:00")
    plan.add(cron=rule, time_zone=zone)
    for hours in range(73):
        plan.database.clock.set(begun + timedelta(hours=hours))
        plan.turns()
    made = [key.removesuffix(":00Z") for key in plan.made()]
    assert made[: len(expected)] == expected
    previewed = preview_schedule(cron=rule, time_zone=zone, after=begun, n=len(made))
    assert [f"{at:%Y-%m-%dT%H:%M}" for at in previewed] == made


def test_a_day_that_a_zone_leaves_out_comes_right_after_it(plan: Any) -> None:
    """Apia had no 30 December 2011: its midnight is that of the 31st, and comes once."""
    begun = plan.at("2011-12-29T00:00:00+00:00")
    plan.add(cron="0 0 * * *", time_zone="Pacific/Apia")
    for hours in range(0, 96, 2):
        plan.database.clock.set(begun + timedelta(hours=hours))
        plan.turns()
    assert plan.made() == [
        "2011-12-29T10:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-31T10:00:00Z",
        "2012-01-01T10:00:00Z",
    ]


@pytest.mark.parametrize(("rule", "minutes"), [("*/15 * * * *", 15), ("0 * * * *", 60), ("every 900s", 15)])
def test_frequent_rules_go_on_in_real_time(plan: Any, rule: str, minutes: int) -> None:
    """In the hour that comes twice they neither fall silent nor double, nor do they in spring."""
    terms = {"every": 900} if rule.startswith("every") else {"cron": rule, "time_zone": "Europe/Berlin"}
    for name, start in (("autumn", "2025-10-25T22:00:00+00:00"), ("spring", "2025-03-29T22:00:00+00:00")):
        begun = plan.at(start)
        plan.add(name, missed="all", **terms)
        plan.turns()
        plan.database.clock.set(begun + timedelta(hours=6))
        plan.turns()
        made = [datetime.fromisoformat(key) for key in plan.made(name)]
        assert made == [begun + timedelta(minutes=minutes * n) for n in range(1, 6 * 60 // minutes + 1)]


def test_three_relays_at_once_make_each_occurrence_once(plan: Any, database: Database) -> None:
    """Three that look at the same moments, one of which is away for a while, make thirty jobs in thirty minutes."""
    begun = plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    for number in range(20):
        plan.add(f"other-{number}", cron="* * * * *")
    plan.turns()
    failures: list[BaseException] = []
    barrier = threading.Barrier(3, timeout=60)

    def relay(number: int) -> None:
        link = database.link(f"test/relay-{number}")
        try:
            for minute in range(1, 31):
                if barrier.wait() == 0:
                    database.clock.set(begun + timedelta(minutes=minute))
                barrier.wait()
                away = number == 0 and 10 <= minute < 13
                while not away and take_turn(link) is not None:
                    pass
                barrier.wait()
        except BaseException as error:
            failures.append(error)
            barrier.abort()
            raise

    threads = [threading.Thread(target=relay, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    expected = [f"{begun + timedelta(minutes=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(1, 31)]
    assert [plan.made(f"other-{number}") for number in range(20)] == [expected] * 20
    assert plan.made() == expected
    assert plan.row()["made"] == 30


def test_a_lost_commit_is_made_up_for_by_the_next(plan: Any, database: Database) -> None:
    """Where a relay's connection breaks between the jobs and the commit, nothing was made; the next makes it, once."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    link = database.link("test/cut")

    def cut() -> None:
        database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test/cut'")

    with pytest.raises(psycopg.OperationalError):
        take_turn(link, cut)
    assert plan.made() == []
    assert plan.row()["broken_at"] is None
    assert [turn.made for turn in plan.turns()] == [1]
    assert plan.made() == ["2026-05-01T12:01:00Z"]


def test_a_job_that_has_the_key_already_is_that_occurrence(plan: Any, database: Database) -> None:
    """Whatever has made it, also with another payload: the turn goes on, and nothing breaks."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(missed="all")
    plan.turns()
    plan.at("2026-05-01T12:02:00+00:00")
    plan.turns()
    database.rows("UPDATE {s}.schedules SET after_at = after_at - interval '2 minutes', wake_at = '-infinity'")
    plan.turns()
    assert plan.made() == ["2026-05-01T12:01:00Z", "2026-05-01T12:02:00Z"]
    assert plan.row()["broken_at"] is None


@pytest.mark.parametrize(
    ("missed", "made", "passed_over"), [("skip", [], 5), ("latest", ["17:00"], 4), ("all", ["16:00", "17:00"], 3)]
)
def test_what_was_missed_goes_by_the_policy(plan: Any, missed: str, made: list[str], passed_over: int) -> None:
    """After five hours without a relay the policy decides, and what is passed over is counted."""
    plan.at("2026-05-01T12:30:00+00:00")
    plan.add(cron="0 * * * *", missed=missed, missed_limit=2)
    plan.turns()
    plan.at("2026-05-01T17:30:00+00:00")
    plan.turns()
    assert plan.made() == [f"2026-05-01T{time}:00Z" for time in made]
    assert plan.row()["passed_over"] == passed_over
    plan.at("2026-05-01T18:00:00+00:00")
    plan.turns()
    assert plan.made()[-1] == "2026-05-01T18:00:00Z"


def test_a_long_absence_is_made_up_for_in_bounded_turns(plan: Any, database: Database) -> None:
    """A second's schedule after an hour: no transaction makes more than a hundred jobs, and none is left out."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(every=1, missed="all", missed_limit=10_000)
    plan.turns()
    plan.at("2026-05-01T12:20:00+00:00")
    assert [turn.made for turn in plan.turns()] == [100] * 12
    assert database.count("jobs") == 1200


def test_jitter_only_puts_the_start_off(plan: Any, database: Database) -> None:
    """The key is the rule's instant; the job may start so much later, as computed from name and instant."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(jitter=300)
    plan.turns()
    at = plan.at("2026-05-01T12:01:00+00:00")
    plan.turns()
    run_at = database.value("SELECT run_at FROM {s}.jobs")
    assert run_at == at + timedelta(seconds=delay_s("nightly", at, 300))
    assert plan.made() == ["2026-05-01T12:01:00Z"]


def test_a_schedule_ends(plan: Any, database: Database) -> None:
    """After the last occurrence there is none any more, and no relay looks at it."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(starts_at=datetime(2026, 5, 1, 12, 5, tzinfo=UTC), ends_at=datetime(2026, 5, 1, 12, 6, tzinfo=UTC))
    for minute in range(10):
        plan.at(f"2026-05-01T12:0{minute}:00+00:00")
        plan.turns()
    assert plan.made() == ["2026-05-01T12:05:00Z", "2026-05-01T12:06:00Z"]
    assert plan.row()["next_at"] is None
    assert database.value("SELECT wake_at = 'infinity' FROM {s}.schedules")


BROKEN = [
    ("zone", {"zone": "America/New_Yrok"}, "time_zone: "),
    ("impossible", {"rule": "0 0 31 2 *"}, "cron: "),
    ("endless", {"rule": "*" * 1_000_000}, "cron: "),
    ("interval", {"rule": "every 0s"}, "every: "),
    ("kind", {"kind": "no kind"}, "kind: "),
    ("huge", {"payload": '{"account": 1' + "0" * 6000 + "}"}, "payload: "),
    ("deep", {"payload": '{"a": ' + "[" * 5000 + "]" * 5000 + "}"}, "payload"),
    ("sealed", {"payload": '{"$sealed": "1:a:b:c"}'}, "payload: "),
]


def test_a_broken_schedule_stops_only_itself(plan: Any, database: Database) -> None:
    """Bad zones, rules, kinds and payloads that were stored by hand are marked, each with its reason; twenty others
    make all their jobs.
    """
    begun = plan.at("2026-05-01T12:00:00+00:00")
    for number in range(20):
        by_hand(database, f"good-{number}")
    for name, stored, _ in BROKEN:
        by_hand(database, f"bad-{name}", **stored)
    for minute in range(5):
        database.clock.set(begun + timedelta(minutes=minute))
        plan.turns()
    for number in range(20):
        assert len(plan.made(f"good-{number}")) == 4
    for name, _, reason in BROKEN:
        row = plan.row(f"bad-{name}")
        assert row["broken_at"] is not None, name
        assert row["last_error"].startswith(reason)
        assert len(row["last_error"]) <= 500
        assert plan.made(f"bad-{name}") == []


def test_a_broken_schedule_is_looked_at_again_ever_less_often(plan: Any, database: Database) -> None:
    """After one minute, two, four, and so on up to an hour; once it is mended it goes on, and is broken no more."""
    begun = plan.at("2026-05-01T12:00:00+00:00")
    by_hand(database, "bad", zone="Nowhere/At_All")
    looks: list[int] = []
    for minute in (0, 1, 2, 3, 6, 7, 14, 15, 30, 31, 62, 63, 122, 123, 182, 183, 242, 243):
        database.clock.set(begun + timedelta(minutes=minute))
        looks += [minute for _ in plan.turns()]
    assert looks == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    database.rows("UPDATE {s}.schedules SET time_zone = 'UTC', wake_at = '-infinity'")
    plan.turns()
    database.clock.advance(60)
    plan.turns()
    assert plan.row("bad")["broken_at"] is None
    assert plan.row("bad")["last_error"] is None
    assert len(plan.made("bad")) == 1


def test_a_count_of_failed_turns_at_its_end_stops_no_neighbour(plan: Any, database: Database) -> None:
    """A broken schedule whose count a hand has set to the highest is broken again, and those behind it have turns."""
    begun = plan.at("2026-05-01T12:00:00+00:00")
    by_hand(database, "bad", zone="Nowhere/At_All")
    database.rows("UPDATE {s}.schedules SET failed_turns = 2147483647")
    plan.add("free")
    plan.turns()
    database.clock.set(begun + timedelta(minutes=1))
    assert Turn("free", made=1) in plan.turns()
    assert plan.row("bad")["broken_at"] == begun


def test_a_zone_that_is_changed_by_hand_breaks_or_holds_at_the_next_look(plan: Any, database: Database) -> None:
    """Each turn plans anew what was planned: a zone that is changed in between is the one that counts."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(cron="0 15 * * *", time_zone="Europe/Berlin")
    plan.turns()
    database.rows("UPDATE {s}.schedules SET time_zone = 'Europe/London'")
    plan.at("2026-05-01T13:00:00+00:00")
    plan.turns()
    assert plan.made() == []
    plan.at("2026-05-01T14:00:00+00:00")
    plan.turns()
    assert plan.made() == ["2026-05-01T14:00:00Z"]


def test_a_missing_right_breaks_no_schedule(plan: Any, database: Database) -> None:
    """What is wrong with the server is raised, and leaves every schedule as it is."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    database.rows("ALTER TABLE {s}.jobs RENAME TO gone")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    with pytest.raises(psycopg.errors.UndefinedTable):
        plan.turns()
    database.rows("ALTER TABLE {s}.gone RENAME TO jobs")
    assert plan.row()["broken_at"] is None
    assert [turn.made for turn in plan.turns()] == [1]


def test_a_clock_that_jumps_back_doubles_nothing(plan: Any) -> None:
    """An hour back after a failover: what was made stays made, and it goes on where it stood."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    plan.turns()
    plan.at("2026-05-01T12:03:00+00:00")
    plan.turns()
    plan.at("2026-05-01T11:03:00+00:00")
    assert plan.turns() == []
    plan.at("2026-05-01T12:04:00+00:00")
    plan.turns()
    assert [key[11:16] for key in plan.made()] == ["12:02", "12:03", "12:04"]


def test_a_schedule_that_another_holds_is_passed_over(plan: Any, database: Database) -> None:
    """A frozen relay, or a person in a transaction, keeps one schedule from its turn, not the others."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add("held")
    plan.add("free")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.schedules WHERE name = 'held' FOR UPDATE"))
        assert [turn.name for turn in plan.turns()] == ["free"]
    assert [turn.name for turn in plan.turns()] == ["held"]


def test_a_turn_waits_for_nobodys_lock_for_long(plan: Any, database: Database) -> None:
    """While a schedule's turn waits the others have none, and while its relay is silent that one has none, for ten
    seconds; what comes after it on the connection has its own bounds.
    """
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    link = database.link("test/turns")

    names = ("lock_timeout", "idle_in_transaction_session_timeout")

    def bounds() -> list[str]:
        show = "SELECT current_setting(%s)"
        return [str(link.connection().execute(show, [name]).fetchone()[0]) for name in names]

    usual, in_turn = bounds(), list[str]()
    assert take_turn(link, lambda: in_turn.extend(bounds())) is not None
    assert in_turn == ["200ms", "10s"]
    assert bounds() == usual
    assert not {*usual} & {*in_turn}


def test_what_another_transaction_holds_keeps_one_schedule_waiting(plan: Any, database: Database) -> None:
    """A waiting job that an open cancel holds, or a key that is just submitted, holds up that schedule, not the others:
    it is tried again soon, counts as broken only if that lasts, and goes on once it is over.
    """
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add("a-cancelled", payload=About(), supersedes=True)
    plan.add("b-submitted")
    plan.add("c-free")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    plan.turns()
    plan.at("2026-05-01T12:02:00+00:00")
    with database.engine().connect() as other, other.begin():
        waiting = find_job(other, kind="test.about", logical_key="a-cancelled@2026-05-01T12:01:00Z")
        assert waiting is not None
        cancel(other, waiting.id, by="ann", reason="not yet committed")
        enqueue(other, Rival())
        turns = plan.turns()
        assert [(turn.name, turn.made, turn.held is not None) for turn in turns] == [
            ("a-cancelled", 0, True),
            ("b-submitted", 0, True),
            ("c-free", 1, False),
        ]
        assert {plan.row(turn.name)["broken_at"] for turn in turns} == {None}
        database.rows("UPDATE {s}.schedules SET failed_turns = 5 WHERE name = 'b-submitted'")
        plan.at("2026-05-01T12:02:01+00:00")
        assert [(turn.name, turn.error is not None) for turn in plan.turns()] == [
            ("a-cancelled", False),
            ("b-submitted", True),
        ]
        assert "held up by another transaction" in plan.row("b-submitted")["last_error"]
    plan.at("2026-05-01T12:02:59+00:00")
    assert [(turn.name, turn.made) for turn in plan.turns()] == [("a-cancelled", 1), ("b-submitted", 1)]
    row = plan.row("b-submitted")
    assert (row["broken_at"], row["last_error"], row["failed_turns"]) == (None, None, 0)


def test_many_schedules_on_one_lock_cost_a_look_one_wait(plan: Any, database: Database) -> None:
    """Of those that need what one transaction holds only the first waits long; a free one behind them has its turn."""
    plan.at("2026-05-01T12:00:00+00:00")
    for number in range(4):
        plan.add(f"a-{number}", payload=About(), supersedes=True)
    plan.add("b-free")
    plan.turns()
    plan.at("2026-05-01T12:01:00+00:00")
    link, patience = database.link("test/patient"), Patience()
    waits: list[float] = []
    turns: list[Turn | None] = []
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("LOCK TABLE {s}.jobs IN SHARE MODE"))
        for _ in range(4):
            waits.append(patience.wait_s())
            turns.append(take_turn(link, patience=patience))
    waits.append(patience.wait_s())
    assert [turn is not None and turn.held is not None for turn in turns] == [True] * 4
    assert waits[0] == 0.2
    assert set(waits[1:]) == {0.01}
    assert take_turn(link, patience=patience) == Turn("b-free", made=1)


def test_what_was_changed_in_between_is_not_broken(plan: Any, database: Database) -> None:
    """A relay that failed with a schedule's old terms leaves the new ones alone, and so does one that failed
    late: after another one's turn, whether that went well or not.
    """
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    link = database.link()
    told = {"name": "nightly", "pause_s": 60.0, "error": "it failed", "broken": True}
    version = "SELECT xmin::text FROM {s}.schedules"
    before = database.value(version)
    with database.engine().begin() as connection:
        change_schedule(connection, Schedule(name="nightly", payload=Report(), cron="*/2 * * * *"), **SAID)
    assert link.run("break_schedule", seen=before, **told) == []
    before = database.value(version)
    plan.turns()
    assert link.run("break_schedule", seen=before, **told) == []
    assert plan.row()["broken_at"] is None
    before = database.value(version)
    assert len(link.run("break_schedule", seen=before, **told)) == 1
    assert link.run("break_schedule", seen=before, **told) == []
    assert plan.row()["failed_turns"] == 1


def test_what_catches_up_keeps_none_from_its_turn_in_time(plan: Any, database: Database) -> None:
    """After an outage, each turn of a schedule that makes all it has missed comes behind whatever is due by then."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add("behind", every=1, missed="all", missed_limit=10_000)
    plan.add("in-time", missed="skip")
    plan.turns()
    plan.at("2026-05-01T12:19:30+00:00")
    link = database.link()
    names = []
    for _ in range(4):
        turn = take_turn(link)
        assert turn is not None
        names.append(turn.name)
        database.clock.advance(1)
    assert sorted(names[:2]) == ["behind", "in-time"]
    assert names[2:] == ["behind", "behind"]
    plan.at("2026-05-01T12:20:01+00:00")
    found = [turn for turn in (take_turn(link), take_turn(link)) if turn is not None and turn.name == "in-time"]
    assert [turn.made for turn in found] == [1]


def test_a_change_after_the_clock_went_back_makes_nothing_twice(plan: Any, database: Database) -> None:
    """Neither another rule nor a resumption leads back before what was seen to."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add()
    plan.add("paused")
    plan.turns()
    plan.at("2026-05-01T12:05:00+00:00")
    plan.turns()
    plan.at("2026-05-01T12:02:00+00:00")
    with database.engine().begin() as connection:
        change_schedule(connection, Schedule(name="nightly", payload=Report(), cron="* * * * *"), **SAID)
        pause_schedule(connection, "paused", **SAID)
        resume_schedule(connection, "paused", **SAID)
    for minute in (2, 3, 4, 5, 6):
        plan.at(f"2026-05-01T12:0{minute}:00+00:00")
        plan.turns()
    assert [key[11:16] for key in plan.made()] == ["12:04", "12:05", "12:06"]
    assert plan.row("paused")["made"] == 3
