"""What a handler says of its progress: where it can be read, what it keeps alive, and what silence costs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, ClassVar
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from outbox.migrations import upgrade_database
from outbox.servers import databases
from outbox_consumer import Handler
from outbox_consumer.contract.job import MARKER_CHARACTERS
from outbox_consumer.ending.endings import overrun_reason
from outbox_schemas import HandlerError, LeaseLost, Sensitive
from support.consuming import AsyncTask, Desk, RunningConsumer, Task, async_handler, handler
from support.database import Database
from support.invariants import check_invariants
from support.jobs import look
from support.servers import SCHEMA
from support.waiting import until

HOSTILE = "page \x00 7 \ud800 \x1b[31m" + "é" * 500


class Card(Task):
    """A job with something that nobody may see."""

    kind: ClassVar[str] = "test.progress_card"
    card: Annotated[str, Sensitive] = "canary-4111"


def stored(desk: Desk, job_id: UUID) -> str | None:
    """Return the marker that is on record for a job that has not ended."""
    owed = look(desk.database, job_id).owed
    return owed.progress if owed is not None else None


def let_silence_pass(running: RunningConsumer, seconds: float) -> None:
    """Have the attempts that run have been silent for longer, as seen by the watch."""
    for entry in running.consumer._book.entries():
        if entry.started_at is not None:
            marker, moved_at = entry.job.marker
            entry.job._progress = (marker, moved_at - seconds)
            entry.started_at -= seconds
            entry.taken_at -= seconds


def test_marker_travels_with_the_heartbeat_and_stays_until_the_next_claim(desk: Desk) -> None:
    """The latest marker is on record while the attempt runs; the next attempt starts without one."""
    gate, second = desk.gate(), desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            for number in range(1000):
                job.progress(f"page {number}")
            gate.wait(job)
            raise ValueError
        second.wait(job)

    desk.start(handler(handle), heartbeat_s=0.1)
    [job_id] = desk.submit("a")
    until(lambda: stored(desk, job_id) == "page 999")
    gate.open()
    second.holds(1)
    assert stored(desk, job_id) is None
    second.open()
    desk.done(1)


def test_any_text_can_be_a_marker(desk: Desk) -> None:
    """A marker is cut, and what PostgreSQL or a terminal can't bear is replaced; what is no text is refused."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        with pytest.raises(TypeError, match="not int"):
            job.progress(7)
        job.progress(HOSTILE)
        gate.wait(job)

    desk.start(handler(handle), heartbeat_s=0.1)
    [job_id, *_] = desk.submit("a", "b")
    found = until(lambda: stored(desk, job_id))
    assert found.startswith("page \N{REPLACEMENT CHARACTER} 7 \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}[31mé")
    assert len(found) == MARKER_CHARACTERS
    gate.open()
    desk.done(2)


def test_standstill_loses_the_job_and_is_told(desk: Desk) -> None:
    """A live handler whose marker stays the same is ended with a code of its own, hears of it, and the job goes on."""
    told: list[str] = []

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 2:
            return
        while not job.lost.wait(0.01):
            job.progress("page 3")
        with pytest.raises(LeaseLost, match="no progress") as caught:
            job.check()
        told.append(caught.value.reason)

    running = desk.start(handler(handle, lease=30, progress_deadline=20))
    [job_id] = desk.submit("a")
    until(lambda: [entry for entry in running.consumer._book.entries() if entry.job.marker[0]])
    let_silence_pass(running, 21)
    desk.done(1)
    until(lambda: told)
    assert "'page 3'" in told[0]
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.last_error(job_id)[:2] == ("retryable", "progress_stalled")
    assert check_invariants(desk.database) == []


def test_async_standstill_is_cancelled(desk: Desk) -> None:
    """An async handler that makes no progress is cancelled, so its slot is free for the next attempt."""

    async def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            job.progress("started")
            await asyncio.sleep(300)

    running = desk.start(async_handler(handle, progress_deadline=20), concurrency=1)
    [job_id] = desk.submit("a", payload=AsyncTask)
    until(lambda: [entry for entry in running.consumer._book.entries() if entry.job.marker[0]])
    let_silence_pass(running, 21)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]


def test_marker_that_moves_keeps_the_lease(desk: Desk) -> None:
    """However long the attempt runs, each new marker starts the deadline anew."""
    gates = [desk.gate() for _ in range(3)]

    def handle(job: Any, payload: Any) -> None:
        for number, gate in enumerate(gates):
            job.progress(f"page {number}")
            gate.wait(job)

    running = desk.start(handler(handle, lease=300, progress_deadline=200))
    [job_id] = desk.submit("a")
    for gate in gates:
        gate.holds(1)
        let_silence_pass(running, 150)
        [entry] = running.consumer._book.entries()
        assert running.consumer._book.kept(time.monotonic()) == [entry]
        gate.open()
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]


def test_standing_lease_is_not_renewed(desk: Desk) -> None:
    """Even where the end can't be written, no heartbeat extends the lease of an attempt that stands still."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            with job.transaction():
                gate.wait(job)

    running = desk.start(handler(handle, lease=3, progress_deadline=2), heartbeat_s=0.3)
    desk.submit("a")
    gate.holds(1)
    let_silence_pass(running, 3)
    expired = "outbox WHERE phase = 'leased' AND lease_expires_at < {s}.clock() - interval '0.5 seconds'"
    until(lambda: desk.database.count(expired) == 1, within_s=30)
    gate.open()
    desk.done(1)


def test_time_in_apply_is_no_standstill(desk: Desk) -> None:
    """The promise ends when `handle` returns: `apply` has no marker to move."""
    gate = desk.gate()
    running = desk.start(handler(lambda *_: "done", lambda _session, job, _result: gate.wait(job), progress_deadline=2))
    [job_id] = desk.submit("a")
    gate.holds(1)
    let_silence_pass(running, 3)
    entry = running.consumer._book.entries()[0]
    assert not entry.stalls(time.monotonic())
    assert running.consumer._book.kept(time.monotonic()) == [entry]
    gate.open()
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]


def test_marker_of_a_discreet_job_is_told_to_nobody(desk: Desk) -> None:
    """Where the payload holds what is sensitive, a marker counts as progress but is neither stored nor quoted."""
    gate = desk.gate()

    def handle(job: Any, payload: Any) -> None:
        job.progress(f"card {payload.card}")
        gate.wait(job)

    running = desk.start(handler(handle, payload=Card, progress_deadline=20), heartbeat_s=0.1)
    desk.submit("a", payload=Card)
    gate.holds(1)
    [entry] = running.consumer._book.entries()
    beaten = entry.trusted_until
    until(lambda: entry.trusted_until > beaten + 0.2)
    assert desk.database.value("SELECT progress FROM {s}.outbox") is None
    assert "canary" not in overrun_reason(entry, time.monotonic() + 21)[0]
    gate.open()
    desk.done(1)


def test_both_limits_passed_names_the_maximum(desk: Desk) -> None:
    """An attempt that is past both limits is told of the maximum runtime."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, _: gate.wait(job), lease=1, max_runtime=60, progress_deadline=2))
    desk.submit("a")
    gate.holds(1)
    [entry] = running.consumer._book.entries()
    assert entry.started_at is not None
    assert overrun_reason(entry, entry.started_at + 5)[1] == "progress_stalled"
    assert overrun_reason(entry, entry.started_at + 61)[1] == "max_runtime_exceeded"
    gate.open()
    desk.done(1)


@pytest.mark.parametrize("deadline", [0, 0.5, 100_000, "x"])
def test_deadline_out_of_bounds_is_refused(deadline: Any) -> None:
    """Too short a deadline would end healthy work, one beyond the maximum runtime would never be reached."""
    with pytest.raises(HandlerError, match="progress_deadline"):
        type(
            "Late",
            (Handler,),
            {
                "payload_type": Task,
                "progress_deadline": deadline if isinstance(deadline, str) else timedelta(seconds=deadline),
            },
        )


@pytest.fixture
def latin_desk(database_url: str, prefix: str) -> Iterator[Desk]:
    """Yield a desk on a database whose encoding holds few characters."""
    name = f"outbox_latin_{uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as maker:
        maker.execute(
            sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").format(sql.Identifier(name))
        )
    database = Database(databases.url_of(database_url, name))
    upgrade_database(database.url, SCHEMA)
    desk = Desk(database, prefix)
    try:
        yield desk
    finally:
        desk.close()
        database.close()
        databases.drop(database_url, name)


def test_a_marker_that_the_database_can_not_hold_costs_no_lease(latin_desk: Desk) -> None:
    """Its lease and its neighbours' go on being renewed, and a later marker is stored as ever."""
    desk, gate = latin_desk, latin_desk.gate()

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "a":
            job.progress("\N{SNOWMAN}")
            gate.wait(job)
            job.progress("thawed")
        second.wait(job)

    second = desk.gate()
    running = desk.start(handler(handle, lease=30), heartbeat_s=0.2)
    [job_id, _] = desk.submit("a", "b")
    gate.holds(1)
    second.holds(1)
    expiry = "SELECT min(lease_expires_at) FROM {s}.outbox"
    first = desk.database.value(expiry)
    until(lambda: (desk.database.value(expiry) or first) > first + timedelta(seconds=2))
    assert running.counted("leases_lost") == 0
    gate.open()
    until(lambda: stored(desk, job_id) == "thawed")
    second.open()
    desk.done(2)
    assert desk.outcomes(job_id) == ["succeeded"]


def test_a_marker_that_the_database_can_not_hold_silences_no_neighbour(latin_desk: Desk) -> None:
    """Whatever else was to be told with the same heartbeat is stored, and is not taken for told otherwise."""
    desk, told, gate = latin_desk, threading.Barrier(5), latin_desk.gate()

    def handle(job: Any, payload: Any) -> None:
        told.wait(30)
        job.progress("\N{SNOWMAN}" if payload.name == "bad" else f"page of {payload.name}")
        gate.wait(job)

    desk.start(handler(handle, lease=30), concurrency=5, heartbeat_s=0.1)
    names = ["a", "b", "bad", "c", "d"]
    ids = desk.submit(*names)
    gate.holds(5)
    until(
        lambda: (
            [stored(desk, job_id) for job_id in ids] == [f"page of {name}" if name != "bad" else None for name in names]
        )
    )
    gate.open()
    desk.done(5)
