"""Hints: what leads to a claim, what is acked and counted, and what is dropped without a word of it in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from typing import Any
from uuid import UUID, uuid4

import pika
import pytest

from outbox import enqueue
from outbox_schemas import encode_hint
from support.consuming import AsyncTask, Desk, Hints, NewTask, OtherTask, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until


def settled(hints: Hints, queue: str = "q") -> bool:
    """Tell whether nothing waits in the queue; what is unacknowledged comes back when the consumer ends."""
    return hints.state(queue) == (0, 0)


def test_hinted_jobs_run_and_their_messages_are_acked(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Jobs named one or many to a message are claimed and run, and no message is left, not even unacknowledged."""
    hints.declare()
    desk.submit(*map(str, range(60)))
    released = desk.release()
    hints.hint(released[:20])
    hints.hint(released[20:], per_message=20)
    running = desk.start(handler(), amqp_url=amqp_url)
    desk.done(60)
    assert running.counted("hints_received") >= 22
    assert running.counted("claimed") == 60
    running.stop()
    assert settled(hints)
    assert check_invariants(desk.database) == []


def test_stale_hints_are_acked_and_counted(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Hints for jobs that are done, running, owed or unknown start nothing, are counted, and vanish."""
    gate = desk.gate()
    running = desk.start(
        handler(lambda job, payload: gate.wait(job) if payload.name == "running" else None), amqp_url=amqp_url
    )
    until(lambda: hints.state() == (0, 1))
    done, busy = desk.submit("done", "running")
    hints.hint(desk.release())
    gate.holds(1)
    desk.done(1)
    [owed] = desk.submit("owed")
    before = running.counted("hints_received")
    hints.hint([done, busy, owed, uuid4(), uuid4()])
    until(lambda: running.counted("hints_received") == before + 5)
    until(lambda: running.counted("hints_stale") + running.counted("hints_unknown") == 5)
    assert running.counted("hints_unknown") == 2
    assert desk.outcomes(done) == ["succeeded"]
    assert desk.state(owed) == "ready"
    assert desk.database.count("attempts") == 1
    gate.open()
    running.stop()
    assert settled(hints)


class AboutTask(Task):
    """A job of which only the newest of a subject waits."""

    def subject_key(self) -> str:
        """Return the same for all."""
        return "it"


def test_a_superseded_jobs_hint_stands_for_the_newest(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Its own is behind all that has come since, where the next one would end it: it takes the turn of the first."""
    hints.declare()
    engine = desk.database.engine()

    def comes(name: str, **terms: Any) -> list[UUID]:
        with engine.begin() as connection:
            enqueue(connection, (AboutTask if terms else Task)(name=name), **terms)
        return desk.release()

    for number in range(3):
        hints.hint(comes(f"newer-{number}", supersedes="earliest"))
        for beside in range(10):
            hints.hint(comes(f"beside-{number}-{beside}"))
    gate, started = desk.gate(), list[str]()

    def work(job: Any, payload: Any) -> None:
        started.append(payload.name)
        gate.wait(job)

    running = desk.start(handler(work), amqp_url=amqp_url, concurrency=1)
    gate.holds(1)
    gate.open()
    desk.done(31)
    assert started.index("newer-2") < started.index("beside-0-9")
    assert running.counted("claimed") == 31
    assert running.counted("hints_stale") == 3


def test_hint_for_a_job_that_is_not_due_makes_it_wait(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A released job whose time was moved is not run early: it is owed again, for its own instant."""
    hints.declare()
    [job_id] = desk.submit("a")
    hints.hint(desk.release())
    desk.database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 hour'")
    running = desk.start(handler(), amqp_url=amqp_url)
    until(lambda: running.counted("hints_not_due") == 1)
    assert desk.database.rows("SELECT phase, due_at > {s}.clock() + interval '50 minutes' FROM {s}.outbox") == [
        ("owed", True)
    ]
    assert desk.outcomes(job_id) == []


def test_job_that_only_another_consumer_can_run_is_left_to_it(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A kind or version unknown here is not claimed or charged, and is offered again until another takes it."""
    hints.declare()
    ids = desk.submit("new", payload=NewTask)
    desk.submit("old")
    hints.hint(desk.release())
    old = desk.start(handler(), amqp_url=amqp_url)
    desk.done(1)
    until(lambda: old.counted("hints_unsupported") == 1)
    assert desk.outcomes(ids[0]) == []
    phase, error = desk.database.rows("SELECT phase, last_error FROM {s}.outbox")[0]
    assert (phase, error) == ("owed", "no handler here for its kind and version")
    desk.start(handler(payload=NewTask), handler(payload=Task))
    desk.done(2)
    assert desk.outcomes(ids[0]) == ["succeeded"]
    assert desk.database.value("SELECT attempt_count FROM {s}.jobs WHERE id = %s", ids[0]) == 1


DEEP = b"[" * 4000 + b"]" * 4000
GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "0xFF": b"\xff" * 40,
    "null": b"null",
    "list": b"[]",
    "deep": DEEP,
    "deeper": b"[" * 100_000,
    "no UUID": json.dumps({"v": 1, "jobs": ["canary-7"]}).encode(),
    "number": json.dumps({"v": 1, "jobs": [7]}).encode(),
    "no jobs": b'{"v":1}',
    "too many": json.dumps({"v": 1, "jobs": [str(uuid4())] * 101}).encode(),
    "other version": json.dumps({"v": 2, "jobs": [str(uuid4())]}).encode(),
    "huge number": b'{"v":' + b"1" * 5000 + b',"jobs":["canary-7"]}',
    "16 MB": b"canary-7" * 2_000_000,  # the most that RabbitMQ 4 takes is 16 MiB
}


def test_garbage_is_dropped_once_and_never_echoed(
    desk: Desk, hints: Hints, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message that is no hint is dropped, counted and not quoted; the good one behind it runs on one channel."""
    hints.declare()
    [job_id] = desk.submit("good")
    hints.send(*GARBAGE.values())
    hints.hint(desk.release())
    with caplog.at_level(logging.DEBUG, logger="outbox"):
        running = desk.start(handler(), amqp_url=amqp_url)
        desk.done(1)
        until(lambda: running.counted("hints_dropped") == len(GARBAGE))
        assert hints.state() == (0, 1)
        running.stop()
    assert desk.outcomes(job_id) == ["succeeded"]
    assert running.counted("hints_received") == 1
    assert settled(hints)
    assert "canary" not in caplog.text + str([vars(record) for record in caplog.records])
    assert [record.getMessage() for record in caplog.records].count("connected to the broker") == 1
    assert not [
        record for record in caplog.records if "away" in record.getMessage() or "ended a sub" in record.getMessage()
    ]


class Unreadable(pika.BasicProperties):
    """Headers of which one is an instant beyond what Python's calendar holds, as a timestamp in milliseconds is."""

    def encode(self) -> list[bytes]:
        """Return the flags, and the table as the broker passes it on."""
        table = b"\x04when" + b"T" + struct.pack(">Q", 1_700_000_000_000)
        return [struct.pack(">H", self.FLAG_HEADERS), struct.pack(">I", len(table)), table]


def test_headers_that_cannot_be_read_end_no_connection(
    desk: Desk, hints: Hints, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a message with such headers the body decides: a hint is one, anything else is dropped, on one connection."""
    hints.declare()
    first, second = desk.submit("first", "second")
    released = desk.release()
    for body in (encode_hint(released[:1]), b"canary-7", encode_hint(released[1:])):
        hints.call(lambda channel, body=body: channel.basic_publish("", hints.name(), body, Unreadable()))
    with caplog.at_level(logging.INFO):
        running = desk.start(handler(), amqp_url=amqp_url, brokerless_after_s=60)
        desk.done(2)
        until(lambda: running.counted("hints_dropped") == 1)
        running.stop()
    assert [desk.outcomes(job_id) for job_id in (first, second)] == [["succeeded"]] * 2
    assert (running.counted("hints_received"), running.counted("claimed_without_broker")) == (2, 0)
    assert [record.getMessage() for record in caplog.records].count("connected to the broker") == 1
    assert settled(hints)


def test_forged_hint_gains_nothing(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A hint sent by hand, with odd headers, for a job that was not released starts nothing."""
    running = desk.start(handler(), amqp_url=amqp_url)
    until(lambda: hints.state() == (0, 1))
    [job_id] = desk.submit("a")
    properties = pika.BasicProperties(headers={"tenant": "another", "x": "y" * 1000}, priority=255)
    hints.call(lambda channel: channel.basic_publish("", hints.name(), encode_hint([job_id]), properties))
    until(lambda: running.counted("hints_stale") == 1)
    assert desk.state(job_id) == "ready"
    assert desk.outcomes(job_id) == []


def test_each_job_runs_once_though_it_is_hinted_many_times(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Doubled, tripled and mixed hints, at two consumers: one attempt each."""
    hints.declare()
    desk.submit(*map(str, range(40)))
    released = desk.release()
    hints.hint(released, per_message=7)
    hints.hint(list(reversed(released)), per_message=3)
    hints.hint([released[0]] * 100, per_message=100)
    consumers = [desk.start(handler(), amqp_url=amqp_url) for _ in range(2)]
    desk.done(40)
    assert desk.database.count("attempts") == 40
    until(lambda: sum(one.counted("hints_received") for one in consumers) >= 6 + 14 + 1)
    assert check_invariants(desk.database) == []


def test_consumer_works_for_its_queues_alone(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Queues come from the handlers' payload types; one named by the operator replaces them."""
    hints.declare()
    hints.declare("other")
    desk.submit("a")
    desk.submit("b", payload=OtherTask)
    hints.hint(desk.release())
    hints.hint(desk.release("other"), queue="other")
    desk.start(handler(), handler(payload=OtherTask), amqp_url=amqp_url, queues=("q",))
    desk.done(1)
    until(lambda: hints.state() == (0, 1))
    assert hints.state("other") == (1, 0)
    assert desk.database.value("SELECT kind FROM {s}.jobs WHERE state = 'succeeded'") == "test.task"


def test_hints_of_a_failed_claim_go_back_whole(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """While claims fail, hints return to the broker, half-read ones included, and each job runs soon after."""
    hints.declare()
    desk.submit(*map(str, range(90)))
    hints.hint(desk.release(), per_message=30)
    desk.database.rows("ALTER TABLE {s}.attempts RENAME TO attempts_away")
    desk.database.rows("ALTER TABLE {s}.outbox RENAME COLUMN release_count TO away")
    running = desk.start(handler(), amqp_url=amqp_url)
    until(lambda: running.counted("hints_returned") >= 2)
    assert desk.database.count("outbox WHERE phase = 'released'") == 90
    desk.database.rows("ALTER TABLE {s}.outbox RENAME COLUMN away TO release_count")
    desk.database.rows("ALTER TABLE {s}.attempts_away RENAME TO attempts")
    desk.done(90, timeout_s=20)
    assert desk.database.count("attempts") == 90
    running.stop()
    assert settled(hints)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_what_goes_ahead_starts_before_what_waits(
    desk: Desk, hints: Hints, amqp_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With the one slot taken and a full line behind it, a hint that goes ahead is claimed at once, and starts next."""
    monkeypatch.setattr("outbox_consumer.taking.governor._STALL_S", 60)
    gate, began = desk.gate(), list[str]()

    def note(job: Any, payload: Any) -> None:
        began.append(payload.name)
        if payload.name == "first":
            gate.wait(job)

    async def note_on_loop(job: Any, payload: Any) -> None:
        await asyncio.to_thread(note, job, payload)

    hints.declare()
    payload = Task if kind == "thread" else AsyncTask
    made = handler(note) if kind == "thread" else async_handler(note_on_loop)
    running = desk.start(made, amqp_url=amqp_url, concurrency=1, batch=20)
    running.consumer._groups[0].pace.seconds_per_job = 1e-6
    for names in (["first"], [f"usual-{number}" for number in range(20)]):
        desk.submit(*names, payload=payload)
        hints.hint(desk.release(), per_message=20)
        until(lambda: running.counted("claimed") in {1, 21})
    until(lambda: running.counted("claimed") == 21)
    desk.submit("ahead", payload=payload)
    hints.hint(desk.release(), ahead=True)
    until(lambda: running.counted("claimed") == 22)
    gate.open()
    desk.done(22)
    assert began[:2] == ["first", "ahead"]
