"""What a consumer takes straight from PostgreSQL, from where its lines begin."""

from __future__ import annotations

import pytest

from outbox.database.link import Link
from outbox.releasing.gleaning import Gleaner
from support.database import Database
from support.jobs import ABILITIES, NewerNote, release_all, submit

pytestmark = pytest.mark.usefixtures("sound")


@pytest.fixture
def gleaner(link: Link) -> Gleaner:
    """Return a gleaner."""
    return Gleaner(link, abilities=ABILITIES, rehint_after_s=10)


@pytest.mark.parametrize("cheap_s", [3600.0, -1.0], ids=["cheap", "dear"])
def test_all_work_is_released(
    database: Database, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch, cheap_s: float
) -> None:
    """Scan after scan, from the beginning or from the floor, everything that can run here is found, once."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", cheap_s)
    submit(database, payloads=[NewerNote(key="foreign")])
    assert gleaner.release("notes", batch=5) == []
    for _ in range(3):
        ids = submit(database, 7)
        first, rest = gleaner.release("notes", batch=5), gleaner.release("notes", batch=5)
        assert (len(first), len(rest)) == (5, 2)
        assert {*first, *rest} == set(ids)
        assert gleaner.release("notes", batch=5) == []


@pytest.mark.parametrize("cheap_s", [3600.0, -1.0], ids=["cheap", "dear"])
def test_what_comes_of_age_is_found(
    database: Database, link: Link, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch, cheap_s: float
) -> None:
    """Jobs that nobody releases, and hints that lead to nothing, are found once they are old enough."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", cheap_s)
    database.clock.stop()
    released = submit(database, 2)
    release_all(link)
    owed = submit(database, 2)
    for _ in range(4):
        assert gleaner.release("notes", batch=5, overdue_s=3) == []
        assert gleaner.strays(["notes"], batch=5, age_s=3) == []
        database.clock.advance(0.74)
    database.clock.advance(0.1)
    assert set(gleaner.strays(["notes"], batch=5, age_s=3)) == set(released)
    assert set(gleaner.release("notes", batch=5, overdue_s=3)) == set(owed)


def test_what_lies_below_the_floor_is_found_by_the_next_full_scan(
    database: Database, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of high priority is missed by no more than the scans between two full ones."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", -1.0)
    monkeypatch.setattr("outbox.database.floors.FEWEST_PAUSES", 10**9)
    for _ in range(3):
        assert gleaner.release("notes", batch=5) == []
    (high,) = submit(database, priority=100)
    assert gleaner.release("notes", batch=5) == []
    gleaner._owed["notes"].cadence.reset()
    assert gleaner.release("notes", batch=5) == [high]


def test_a_release_that_commits_late_is_found(
    database: Database, link: Link, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint that went out just before a scan, and could be seen just after it, stands above the floor."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", -1.0)
    database.clock.stop()
    late = submit(database)
    relay = database.link("test/relay")
    with relay.transaction():
        release_all(relay)
        database.clock.advance(0.9)
        for _ in range(3):
            assert gleaner.strays(["notes"], batch=5, age_s=0) == []
    relay.close()
    assert not gleaner._strays.cadence.due
    assert gleaner.strays(["notes"], batch=5, age_s=0) == late


def test_a_low_priority_does_not_lift_the_floor_above_what_comes(
    database: Database, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only a job was found that stands behind the present, those that are submitted next are found as well,
    however far the database's clock may be behind this machine's.
    """
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", -1.0)
    database.clock.advance(-86_400)
    low = submit(database, priority=-60)
    assert gleaner.release("notes", batch=1) == low
    assert not gleaner._owed["notes"].cadence.due
    assert gleaner.release("notes", batch=1) == []
    usual = submit(database)
    assert gleaner.release("notes", batch=1) == usual


def test_a_turn_of_tenants_does_not_lift_the_floor_above_others_older_jobs(
    database: Database, gleaner: Gleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went first in a round may be the newest of the line: what stands before it is found by the next scan."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", -1.0)
    monkeypatch.setattr("outbox.database.floors.FEWEST_PAUSES", 10**9)
    monkeypatch.setattr("outbox.releasing.gleaning._PRESENT_S", 0.0)
    old = submit(database, 6, tenant="flood")
    assert gleaner.release("notes", batch=1) == old[:1]
    database.clock.advance(60)
    new = submit(database, tenant="ann")
    assert gleaner.release("notes", batch=2) == [*new, old[1]]
    assert gleaner.release("notes", batch=10) == old[2:]
