"""What the history keeps of attempts and of refused writes."""

from __future__ import annotations

from typing import Any

from outbox.reading.jobs import list_attempts, list_refusals
from outbox_consumer import (
    TerminalError,
)
from support.consuming import Desk, handler
from support.waiting import until


def test_the_history_says_when_it_started_and_how_far_it_came(desk: Desk) -> None:
    """Success, a failure in `handle`, and one in `apply`."""

    def handle(_job: Any, payload: Any) -> None:
        if payload.name == "handle":
            raise TerminalError("no")

    def apply(_session: Any, job: Any, _result: Any) -> None:
        if job.logical_key == "apply":
            raise TerminalError("no")

    desk.start(handler(handle, apply))
    ids = dict(zip(("done", "handle", "apply"), desk.submit("done", "handle", "apply"), strict=True))
    desk.done(2, "failed")
    desk.done(1)
    link = desk.database.link()
    found = {name: list_attempts(link, job_id)[0] for name, job_id in ids.items()}
    assert {name: one.reached for name, one in found.items()} == {
        "done": "done",
        "handle": "started",
        "apply": "applying",
    }
    for one in found.values():
        assert one.started_at is not None
        assert one.claimed_at <= one.started_at <= one.ended_at


def test_refused_writes_are_kept_with_their_job(desk: Desk) -> None:
    """A worker that wakes up after its lease leaves a trace: which attempt wanted what."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt > 1:
            return
        gate.wait(job)
        if payload.name == "fails":
            raise ValueError
        if payload.name == "writes":
            with job.transaction():
                pass

    running = desk.start(handler(handle), heartbeat_s=30)
    ids = dict(zip(("ends", "fails", "writes"), desk.submit("ends", "fails", "writes"), strict=True))
    gate.holds(3)
    for job_id in ids.values():
        desk.take_lease(job_id)
    gate.open()
    until(lambda: desk.database.count("refusals") == 3)
    link = desk.database.link()
    found = {name: [(one.attempt, one.what) for one in list_refusals(link, job_id)] for name, job_id in ids.items()}
    assert found == {"ends": [(1, "succeed")], "fails": [(1, "retry")], "writes": [(1, "transaction")]}
    assert running.counted("stale_writes_refused") == 3


def test_what_can_not_be_kept_of_refused_writes_hurts_nobody(desk: Desk) -> None:
    """Without the table, or the right to it, the consumer goes on."""
    gate = desk.gate()
    desk.database.rows("DROP TABLE {s}.refusals")
    running = desk.start(handler(lambda job, _payload: gate.wait(job) if job.attempt == 1 else None), heartbeat_s=30)
    [job_id] = desk.submit("a")
    gate.holds(1)
    desk.take_lease(job_id)
    gate.open()
    until(lambda: running.counted("stale_writes_refused") == 1)
    desk.done(1)
    desk.submit("b")
    desk.done(2)
