"""Queues with slots of their own: neither their jobs nor what a consumer holds for them is in another queue's way."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner

from outbox.errors import SettingsError
from outbox.settings import Settings
from outbox_consumer import cli
from outbox_consumer.broker.stream import HintStream
from outbox_consumer.taking.groups import Group
from outbox_consumer.taking.taking import Taker
from support.consuming import AsyncTask, Desk, Hints, OtherTask, RunningConsumer, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until

pytestmark = pytest.mark.timeout(180)


class Meter:
    """How many handlers of each queue run, and the most that ever did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    @contextmanager
    def counting(self, payload: Task) -> Iterator[None]:
        """Count a handler of this payload's queue while the block runs."""
        with self._lock:
            self.now[payload.queue] += 1
            self.most[payload.queue] = max(self.most[payload.queue], self.now[payload.queue])
        try:
            yield
        finally:
            with self._lock:
                self.now[payload.queue] -= 1


def group_of(running: RunningConsumer, queue: str) -> Group:
    """Return the group in which a consumer has a queue."""
    return next(group for group in running.consumer._groups if queue in group.queues)


def offer(desk: Desk, hints: Hints | None, names: Sequence[str], payload: type[Task]) -> list[UUID]:
    """Commit jobs, and hint them where there is a broker."""
    ids = desk.submit(*names, payload=payload)
    if hints is not None:
        hints.hint(desk.release(payload.queue), queue=payload.queue)
    return ids


@pytest.fixture(params=["broker", "alone"])
def offered(request: pytest.FixtureRequest) -> tuple[Hints | None, str | None]:
    """Return a hand on the broker and its URL, or neither for a consumer without one."""
    if request.param == "alone":
        return None, None
    hints: Hints = request.getfixturevalue("hints")
    hints.declare("q")
    hints.declare("other")
    return hints, request.getfixturevalue("amqp_url")


def test_a_flooded_queue_leaves_anothers_slots_free(desk: Desk, offered: tuple[Hints | None, str | None]) -> None:
    """Beside a queue whose jobs all block, another's start at once, as many as it has slots, and no more of either."""
    hints, url = offered
    meter, flood, gate = Meter(), desk.gate(), desk.gate()

    def handle(job: Any, payload: Task) -> None:
        with meter.counting(payload):
            (flood if payload.queue == "q" else gate).wait(job)

    both = (handler(handle), handler(handle, payload=OtherTask))
    running = desk.start(*both, amqp_url=url, queues=("q=3", "other=5"), brokerless_after_s=60)
    offer(desk, hints, [f"flood {number}" for number in range(200)], Task)
    flood.holds(3)
    offer(desk, hints, [str(number) for number in range(7)], OtherTask)
    gate.holds(5)
    # Long enough for the governor to have seen both full, and to have handed back what was too much.
    until(lambda: url is None or all(group_of(running, name).stream.paused for name in ("q", "other")), within_s=30)  # type: ignore[union-attr]
    assert meter.now == {"q": 3, "other": 5}
    gate.open()
    # What was returned to the broker, or handed back, is released again by nobody here: found as forgotten.
    until(lambda: desk.database.count("jobs WHERE queue = 'other' AND state = 'succeeded'") == 7, within_s=60)
    assert meter.most == {"q": 3, "other": 5}
    assert desk.database.count("jobs WHERE queue = 'q' AND state = 'running'") == 3


def test_a_full_queues_hints_stay_out_of_anothers_way(
    desk: Desk, hints: Hints, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue with a pile of hints is paused by itself; another's hints are taken at once, and by the broker's way."""
    pause, paused = HintStream.pause, []

    def note(stream: HintStream) -> None:
        paused.append(stream)
        pause(stream)

    monkeypatch.setattr(HintStream, "pause", note)
    flood = desk.gate()
    hints.declare("q")
    hints.declare("other")
    running = desk.start(
        handler(lambda job, _: flood.wait(job)),
        handler(payload=OtherTask),
        amqp_url=amqp_url,
        queues=("q=2", "other=2"),
        brokerless_after_s=60,
    )
    offer(desk, hints, [f"flood {number}" for number in range(300)], Task)
    flood.holds(2)
    full, free = group_of(running, "q").stream, group_of(running, "other").stream
    assert full is not None
    assert free is not None
    until(lambda: full.paused, within_s=30)
    until(lambda: hints.state("q") == (298 - running.counted("handed_back"), 0), within_s=30)
    direct = running.counted("claimed_without_broker")
    for wave in range(20):
        offer(desk, hints, [f"{wave} {number}" for number in range(10)], OtherTask)
        desk.done(10 * (wave + 1))
    assert running.counted("claimed_without_broker") == direct
    assert full.paused
    assert free not in paused
    assert full.prefetch == 2
    assert desk.database.count("jobs WHERE queue = 'q' AND state = 'running'") == 2


def test_a_number_holds_over_both_kinds_of_handlers(desk: Desk) -> None:
    """Sync and async jobs of one queue share its number; another queue's numbers hold meanwhile, and all get done."""
    meter = Meter()

    def handle(job: Any, payload: Task) -> None:
        with meter.counting(payload):
            job.lost.wait(0.002)

    async def handle_async(job: Any, payload: Task) -> None:
        with meter.counting(payload):
            await asyncio.sleep(0.002)

    desk.submit(*map(str, range(150)))
    desk.submit(*map(str, range(150)), payload=AsyncTask)
    desk.submit(*map(str, range(150)), payload=OtherTask)
    desk.start(
        handler(handle),
        async_handler(handle_async),
        handler(handle, payload=OtherTask),
        queues=("q=3", "other=2"),
    )
    desk.done(450, timeout_s=60)
    assert meter.most == {"q": 3, "other": 2}
    assert check_invariants(desk.database) == []


def test_queues_without_a_number_share_the_concurrency(desk: Desk) -> None:
    """Beside a queue of its own slots, the rest have those of `concurrency`, and connections are there for all."""
    meter, gate = Meter(), desk.gate()

    def handle(job: Any, payload: Task) -> None:
        with meter.counting(payload):
            gate.wait(job)

    both = (handler(handle), handler(handle, payload=OtherTask))
    running = desk.start(*both, queues=("q=1", "other"), concurrency=4)
    desk.submit(*map(str, range(20)))
    desk.submit(*map(str, range(20)), payload=OtherTask)
    gate.holds(5)
    assert meter.now == {"q": 1, "other": 4}
    pool: Any = running.consumer._connections.for_handlers.pool
    assert pool.size() == 5
    gate.open()
    desk.done(40)
    assert meter.most == {"q": 1, "other": 4}


def test_only_the_stalled_queues_line_goes_back(desk: Desk) -> None:
    """Work claimed ahead for a queue that turns out slow goes to others; another's pace and slots stay as they were."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, _: gate.wait(job)), handler(payload=OtherTask), queues=("q=2", "other=2"))
    slow, fast = group_of(running, "q"), group_of(running, "other")
    slow.pace.seconds_per_job = fast.pace.seconds_per_job = 0.001
    desk.submit(*map(str, range(50)))
    gate.holds(2)
    until(lambda: running.counted("handed_back") > 0, within_s=30)
    assert slow.pace.seconds_per_job >= 2
    assert fast.pace.seconds_per_job <= 0.001
    desk.submit(*map(str, range(50)), payload=OtherTask)
    desk.done(50)
    assert desk.database.count("jobs WHERE queue = 'q' AND state = 'running'") == 2


def test_each_queue_hands_back_what_has_not_started_at_the_end(desk: Desk) -> None:
    """A consumer that stops gives the lines of all its queues back uncharged, and waits for what runs."""
    gate = desk.gate()

    def handle(job: Any, _: Any) -> None:
        gate.wait(job)

    both = (handler(handle), handler(handle, payload=OtherTask))
    running = desk.start(*both, queues=("q=2", "other=3"))
    for group in running.consumer._groups:
        group.pace.seconds_per_job = 0.001
    desk.submit(*map(str, range(40)))
    desk.submit(*map(str, range(40)), payload=OtherTask)
    gate.holds(5)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    until(lambda: desk.states() == {"running": 5, "ready": 75})
    gate.open()
    stopping.join(30)
    assert not stopping.is_alive()
    assert desk.states() == {"succeeded": 5, "ready": 75}
    assert desk.database.count("jobs WHERE state = 'ready' AND attempt_count > uncharged_attempts") == 0
    assert check_invariants(desk.database) == []


def test_a_hint_in_the_wrong_queue_takes_no_slot_there(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """However a job's id comes in, it runs in the slots of the queue that its row names."""
    meter, gate = Meter(), desk.gate()

    def handle(job: Any, payload: Task) -> None:
        with meter.counting(payload):
            gate.wait(job)

    both = (handler(handle), handler(handle, payload=OtherTask))
    hints.declare("q")
    running = desk.start(*both, amqp_url=amqp_url, queues=("q=4", "other=1"), brokerless_after_s=60)
    desk.submit("a", "b", "c", payload=OtherTask)
    hints.hint(desk.release("other"), queue="q")
    until(lambda: running.counted("hints_stale") == 3)
    gate.holds(1)
    gate.open()
    desk.done(3)
    assert meter.most == {"other": 1}


def test_a_queue_whose_claims_fail_holds_up_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the database that meets one queue's claims alone costs that one a pause; it goes on by itself."""
    take, failing, failed = Taker.take, threading.Event(), []

    def sometimes(taker: Taker, group: Group, ids: Sequence[UUID]) -> tuple[int, int]:
        if failing.is_set() and "q" in group.queues:
            failed.append(group)
            raise psycopg.errors.QueryCanceled("too slow")
        return take(taker, group, ids)

    monkeypatch.setattr(Taker, "take", sometimes)
    failing.set()
    desk.start(handler(), handler(payload=OtherTask), queues=("q=2", "other=2"))
    desk.submit("a")
    for number in range(30):
        desk.submit(str(number), payload=OtherTask)
        desk.done(number + 1)
    assert 0 < len(failed) < 30
    failing.clear()
    desk.done(31)


def test_the_command_takes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--queue` may be repeated, with and without a number; a bad one is refused before any handler is loaded."""
    made: list[Settings] = []
    monkeypatch.setattr(cli, "configure", lambda _settings: None)
    monkeypatch.setattr(cli, "set_start_aside", lambda: None)
    monkeypatch.setattr(cli, "make_consumer", lambda _handlers, settings: made.append(settings))
    monkeypatch.setattr(cli, "serve", lambda _consumer: 0)

    def consume(*arguments: str) -> None:
        CliRunner().invoke(cli.consume, ["any", *arguments], standalone_mode=False, catch_exceptions=False)

    consume("--queue", "mail=20", "--queue", "export=2", "--queue", "other", "--concurrency", "5")
    assert made[0].consumer.queue_slots() == (("mail", 20), ("export", 2), ("other", None))
    assert made[0].consumer.concurrency == 5
    with pytest.raises(SettingsError, match="queues on the command line: must give queue mail a whole number of slots"):
        consume("--queue", "mail=many")
    with pytest.raises(SettingsError, match="queues on the command line: must name each queue once"):
        consume("--queue", "mail=2", "--queue", "mail=3")
    assert len(made) == 1
