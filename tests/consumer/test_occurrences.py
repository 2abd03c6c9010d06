"""What a handler knows of the schedule that has made its job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from outbox import Schedule, run_schedule_now, sync_schedules
from outbox.schedules.turns import take_turn
from support.consuming import Desk, Task, handler

SAID = {"by": "ann", "reason": "a test"}


def test_a_handler_sees_which_occurrence_its_job_is(desk: Desk) -> None:
    """The name and the rule's instant; of one that a person asked for, when; of any other job, none."""
    seen: list[tuple[Any, str]] = []

    def handle(job: Any, payload: Any) -> None:
        seen.append((job.occurrence, payload.name))

    clock, noon = desk.database.clock, datetime(2026, 5, 1, 12, tzinfo=UTC)
    clock.set(noon)
    link = desk.database.link("test/schedules")
    with desk.database.engine().begin() as connection:
        nightly = Schedule(name="nightly", payload=Task(name="scheduled"), every=3600)
        sync_schedules(connection, [nightly], source="test", **SAID)
        run_schedule_now(connection, "nightly", **SAID)
    take_turn(link)
    clock.advance(3600)
    assert take_turn(link) is not None
    desk.submit("plain")
    desk.start(handler(handle))
    desk.done(3)
    assert {name for occurrence, name in seen if occurrence is None} == {"plain"}
    assert {occurrence for occurrence, name in seen if name == "scheduled"} == {
        ("nightly", noon, True),
        ("nightly", datetime(2026, 5, 1, 13, tzinfo=UTC), False),
    }
