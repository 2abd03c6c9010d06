"""How much a consumer holds: never more than it can run soon, and nothing that others could do instead."""

from __future__ import annotations

import gc
import time
from typing import Any
from uuid import UUID

import pytest

from outbox_consumer import Handler
from outbox_consumer.contract.registry import Lane
from outbox_consumer.running.tasks import LoopSlots
from support.consuming import AsyncTask, Desk, Hints, OtherTask, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until


def test_busy_consumer_returns_its_hints_and_pauses(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """With all slots taken by long jobs, hints go back instead of staying unacknowledged, and flow again later."""
    gate = desk.gate()
    hints.declare()
    desk.submit(*map(str, range(30)))
    hints.hint(desk.release())
    running = desk.start(handler(lambda job, _: gate.wait(job)), amqp_url=amqp_url, concurrency=8)
    gate.holds(8)
    # One may have been claimed ahead, whose hint is gone: it is handed back to whoever releases it next.
    until(lambda: hints.state() == (22 - running.counted("handed_back"), 0), within_s=30)
    paused = time.monotonic()
    until(lambda: time.monotonic() > paused + 6)
    assert hints.state() == (22 - running.counted("handed_back"), 0)
    assert running.counted("hints_returned") <= 22
    assert running.counted("claimed") == 8 + running.counted("handed_back") <= 9
    gate.open()
    hints.hint(desk.release())
    desk.done(30)
    until(lambda: hints.state() == (0, 1))


@pytest.mark.parametrize("concurrency", [1, 4])
def test_slow_jobs_are_not_claimed_ahead(desk: Desk, concurrency: int) -> None:
    """Of a hundred slow jobs exactly as many are claimed as there are slots."""
    gate = desk.gate()
    desk.submit(*map(str, range(100)))
    running = desk.start(handler(lambda job, _: gate.wait(job)), concurrency=concurrency)
    gate.holds(concurrency)
    started = time.monotonic()
    until(lambda: time.monotonic() > started + 0.5)
    assert running.counted("claimed") == concurrency
    assert desk.states() == {"ready": 100 - concurrency, "running": concurrency}


def test_stalled_line_goes_back_uncharged(desk: Desk) -> None:
    """Work claimed ahead in the hope of fast jobs goes to others when they turn out slow; no attempt is charged."""
    gate = desk.gate()
    hopeful = desk.start(handler(lambda job, payload: gate.wait(job) if payload.name[0] == "s" else None))
    for wave in range(4):
        desk.submit(*(f"f{wave}-{number}" for number in range(250)))
        desk.done(250 * (wave + 1))
    desk.submit(*(f"s{number}" for number in range(60)))
    gate.holds(4)
    until(lambda: hopeful.counted("handed_back") > 0, within_s=30)
    assert desk.database.rows("SELECT DISTINCT error_code FROM {s}.attempts WHERE error_code IS NOT NULL") == [
        ("worker_busy",)
    ]
    assert desk.database.count("jobs WHERE state = 'running'") == 4
    charged = "jobs WHERE attempt_count - uncharged_attempts > (state = 'running')::integer AND state <> 'succeeded'"
    assert desk.database.count(charged) == 0
    helping = desk.start(handler(), concurrency=2)
    desk.done(1056)
    until(lambda: helping.counted("succeeded") == 56)
    gate.open()
    desk.done(1060)
    assert check_invariants(desk.database) == []


def test_two_consumers_share_slow_work(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Neither consumer prefetches or claims what the other could run now."""
    gate = desk.gate()
    hints.declare()
    consumers = [desk.start(handler(lambda job, _: gate.wait(job)), amqp_url=amqp_url, concurrency=3) for _ in range(2)]
    until(lambda: hints.state() == (0, 2))
    desk.submit(*map(str, range(6)))
    hints.hint(desk.release())
    gate.holds(6)
    assert [one.consumer.running() for one in consumers] == [3, 3]


def test_handlers_of_both_kinds_share_a_consumer(desk: Desk) -> None:
    """Sync and async handlers run side by side, each on slots of their own."""
    gate = desk.gate()

    async def handle(job: Any, payload: Any) -> None: ...

    desk.start(handler(lambda job, _: gate.wait(job)), async_handler(handle), concurrency=4)
    desk.submit("a", "b")
    gate.holds(2)
    desk.submit(*map(str, range(50)), payload=AsyncTask)
    desk.done(50)
    gate.open()
    desk.done(52)


def test_no_queue_waits_for_the_end_of_anothers_backlog(desk: Desk) -> None:
    """Without the broker the queues take turns."""
    finished: list[str] = []

    def handle(job: Any, payload: Any) -> None:
        finished.append(payload.name)
        start = time.monotonic()
        until(lambda: time.monotonic() > start + 0.01)

    desk.submit(*(f"other{number}" for number in range(100)), payload=OtherTask)
    desk.submit("q")
    desk.start(handler(handle), handler(handle, payload=OtherTask), concurrency=1)
    desk.done(101)
    assert finished.index("q") < 50


def test_two_thousand_jobs_leave_nothing_behind(desk: Desk) -> None:
    """After a long run no structure has grown: leases, lines, tasks, hints and entries are gone."""
    tried: set[UUID] = set()

    def fail_once(job: Any, payload: Any) -> None:
        # By the runs: what is handed back on a slow machine is a numbered attempt, too, and has never run.
        if payload.name.endswith("9") and job.id not in tried:
            tried.add(job.id)
            raise ValueError

    async def handle(job: Any, payload: Any) -> None:
        fail_once(job, payload)

    running = desk.start(handler(fail_once), async_handler(handle), concurrency=8)
    desk.submit(*map(str, range(1000)))
    desk.submit(*map(str, range(1000)), payload=AsyncTask)
    desk.done(2000, timeout_s=60)
    consumer = running.consumer
    until(lambda: running.held() == 0 and consumer.running() == 0)
    assert running.counted("retried") == 200
    [group] = consumer._groups
    assert len(group.inbox) == 0
    assert len(consumer._claimer._taker._suspects) == 0
    assert (len(consumer._ender._waiting), consumer._ender._aside) == (0, [])
    for slots in group.slots.values():
        assert slots.load() == 0
    loop = group.slots[Lane.TASK]
    assert isinstance(loop, LoopSlots)
    assert loop._tasks == {}
    from outbox_consumer.holding.book import Entry  # noqa: PLC0415

    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, Entry)]
    assert len(left) <= 16
    assert desk.database.count("outbox") == 0
    assert check_invariants(desk.database) == []


def test_one_handler_serves_many_threads(desk: Desk) -> None:
    """A handler is one instance for all slots, so state on it is shared: what the documentation says is so."""
    seen: set[int] = set()

    class Mine(Handler[Task]):
        def handle(self, *_: Any) -> None:
            seen.add(id(self))

    desk.start(Mine())
    desk.submit(*map(str, range(20)))
    desk.done(20)
    assert len(seen) == 1
