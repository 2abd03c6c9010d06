"""Occurrences that end those before them: they keep their place, so that however fast they come some of them run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from outbox import Schedule, run_schedule_now
from outbox.leases.ending import complete
from outbox.leases.leasing import Ability, claim
from outbox_schemas import Payload, ScheduleRefused
from support.database import Database
from support.jobs import WORKER, Note, release_all, submit

from .conftest import SAID, Report

pytestmark = pytest.mark.usefixtures("sound")

ABLE = [Ability(kind, 1, 600, 3, "h") for kind in ("test.note", "test.about", "test.booking", "test.entry")]


class About(Report):
    """Reports of which only the newest waits."""

    kind: ClassVar[str] = "test.about"

    def subject_key(self) -> str | None:
        """Return what it is about."""
        return "it"


class Booking(About):
    """The same, one after the other with all entries of an account."""

    kind: ClassVar[str] = "test.booking"
    limit_group: ClassVar[str | None] = "account"
    ordered: ClassVar[bool] = True

    def limit_key(self) -> str | None:
        """Return the account."""
        return "account 1"


class Entry(Note):
    """Another job of that account."""

    kind: ClassVar[str] = "test.entry"
    limit_group: ClassVar[str | None] = "account"
    ordered: ClassVar[bool] = True

    def limit_key(self) -> str | None:
        """Return the account."""
        return "account 1"


def first_run(plan: Any, begun: datetime, beside: type[Note], kind: str) -> int | None:
    """Return after how many seconds a job of the kind is claimed, where each minute a job beside it comes first, and
    each 90 seconds one job is claimed, up to ten minutes.
    """
    link = plan.database.link("test/consumer")
    for second in range(0, 601, 30):
        plan.database.clock.set(begun + timedelta(seconds=second))
        if second % 60 == 0:
            submit(plan.database, payloads=[beside(key=f"{second}")])
            plan.turns()
        if second % 90 == 0:
            claimed = claim(link, [hint.job_id for hint in release_all(link, batch=1)], ABLE, WORKER)
            complete(link, [one.lease for one in claimed])
            if any(one.kind == kind for one in claimed):
                return second
    return None


@pytest.mark.parametrize(("payload", "beside"), [(About(), Note), (Booking(), Entry)], ids=["line", "order of a key"])
def test_one_that_comes_faster_than_its_queue_moves_runs(plan: Any, payload: Payload, beside: type[Note]) -> None:
    """Each ends the one before, in whose place it goes on: in its queue's line, and in the order of its key."""
    begun = plan.at("2026-05-01T12:00:00+00:00")
    plan.add(payload=payload, supersedes=True)
    plan.turns()
    assert first_run(plan, begun, beside, payload.kind) == 180


def test_the_first_time_is_handed_on(plan: Any, database: Database) -> None:
    """From one to the next, through many, and to one that is run now; the job's key tells which occurrence it is."""
    plan.at("2026-05-01T12:00:00+00:00")
    plan.add(payload=Booking(), supersedes=True, priority=3)
    plan.turns()
    waiting = (
        "SELECT j.run_at, o.due_at, o.order_key, j.limit_place = o.limit_place, j.limit_place = "
        "(SELECT min(limit_place) FROM {s}.jobs) FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id"
    )
    for minute in (1, 2, 3):
        plan.at(f"2026-05-01T12:0{minute}:00+00:00")
        plan.turns()
    first = datetime.fromisoformat("2026-05-01T12:01:00+00:00")
    kept = [(first, first, first - timedelta(minutes=3), True, True)]
    assert database.rows(waiting) == kept
    with database.engine().begin() as connection:
        assert len(run_schedule_now(connection, "nightly", **SAID).superseded) == 1
    assert database.rows(waiting) == kept


def test_one_whose_hint_is_out_hands_on_its_place(plan: Any, database: Database) -> None:
    """The next one is released first, before what has come since."""
    begun = plan.at("2026-05-01T12:00:00+00:00")
    plan.add(payload=About(), supersedes=True)
    plan.turns()
    plan.database.clock.set(begun + timedelta(minutes=1))
    plan.turns()
    link = database.link()
    assert len(release_all(link)) == 1
    plan.database.clock.set(begun + timedelta(seconds=90))
    submit(database)
    plan.database.clock.set(begun + timedelta(minutes=2))
    plan.turns()
    (hint,) = release_all(link, batch=1)
    (claimed,) = claim(link, [hint.job_id], ABLE, WORKER)
    assert claimed.logical_key == "nightly@2026-05-01T12:02:00Z"


@pytest.mark.parametrize(
    ("rule", "jitter", "most"),
    [
        ({"every": 60}, 60, 59),
        ({"every": 60}, 300, 59),
        ({"cron": "*/5 * * * *"}, 300, 299),
        ({"cron": "0,1 3 * * 1"}, 61, 59),
        ({"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}, 82_800, 82_799),
    ],
)
def test_no_jitter_may_reach_the_next_one(rule: dict[str, Any], jitter: int, most: int) -> None:
    """An occurrence that is ended before it may start never runs: refused, with how much may be, before any SQL."""

    def declare(**terms: Any) -> Schedule:
        return Schedule(**{"name": "n", "payload": About(), "supersedes": True, "jitter": jitter} | rule | terms)

    refused = rf"^jitter: of {jitter} s is not below the {most + 1} s .* give {most} s"
    with pytest.raises(ScheduleRefused, match=refused):
        declare()
    assert declare(jitter=most).jitter == most
    assert declare(supersedes=False).jitter == jitter


def test_a_rule_that_comes_once_may_have_any_jitter() -> None:
    """Nothing follows it that could end it, or not within a year."""
    leap = {"cron": "0 0 29 2 *", "starts_at": datetime(2025, 1, 1, tzinfo=UTC)}
    assert Schedule(name="n", payload=About(), supersedes=True, jitter=86_400, **leap).jitter == 86_400
