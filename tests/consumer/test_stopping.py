"""How a consumer ends: a real process, real signals, bounded in time whatever its handlers and servers do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.consuming import AsyncTask, Desk, Hints, OtherTask, Task, amqp_through, handler, through
from support.invariants import check_invariants
from support.proxy import Proxy
from support.waiting import until

HANDLERS = textwrap.dedent(
    """
    import asyncio, os, pathlib, time
    from concurrent.futures import ThreadPoolExecutor
    from datetime import timedelta
    from outbox_consumer import AsyncHandler, Handler
    from support.consuming import AsyncTask, NOW, OtherTask, Task

    HERE = pathlib.Path(os.environ["WORK_DIR"])

    def seen(name):
        return (HERE / name).exists()

    LEASE = timedelta(seconds=float(os.environ["WORK_LEASE_S"]))

    class Sync(Handler[Task]):
        retry = NOW
        lease = LEASE
        def handle(self, job, payload):
            if payload.name.startswith("fast"):
                return
            (HERE / f"started-{payload.name}").touch()
            if payload.name == "deadly":
                os._exit(137)
            if payload.name == "forever":
                while True:
                    time.sleep(60)
            if payload.name == "thread":
                ThreadPoolExecutor().submit(time.sleep, 300).result()
            while not seen("go"):
                time.sleep(0.01)
            job.check()

    class Async(AsyncHandler[AsyncTask]):
        retry = NOW
        lease = LEASE
        async def handle(self, job, payload):
            (HERE / f"started-{payload.name}").touch()
            if payload.name == "to_thread":
                await asyncio.to_thread(time.sleep, 300)
            if payload.name == "blocks":
                time.sleep(300)
            if payload.name == "stubborn":
                while True:
                    try:
                        await asyncio.sleep(300)
                    except asyncio.CancelledError:
                        pass
            while not seen("go"):
                await asyncio.sleep(0.01)

    class HangingApply(AsyncHandler[OtherTask]):
        lease = LEASE
        async def handle(self, job, payload):
            pass
        def apply(self, session, job, result):
            (HERE / f"started-{job.logical_key}").touch()
            time.sleep(300)
    """
)


class Process:
    """`outbox consume` as a process of its own."""

    def __init__(self, folder: Path, database_url: str, *, lease_s: float, **settings: Any) -> None:
        (folder / "work_handlers.py").write_text(HANDLERS, encoding="utf-8")
        tests = str(Path(__file__).parents[1])
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), tests, os.environ.get("PYTHONPATH")])),
            "WORK_DIR": str(folder),
            "WORK_LEASE_S": str(lease_s),
            "OUTBOX_DATABASE_URL": database_url,
        } | {f"OUTBOX_{name.upper()}": str(value) for name, value in settings.items()}
        self._log = (folder / "log.jsonl").open("w+", encoding="utf-8")
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from outbox.cli.root import main; main()", "consume", "work_handlers", "--json"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            cwd=folder,
        )

    def started(self, name: str) -> None:
        """Wait until a job's handler runs."""
        until(lambda: (self.folder / f"started-{name}").exists() or self.process.poll() is not None, within_s=60)
        assert self.process.poll() is None, self.log()

    def go(self) -> None:
        """Let the waiting handlers finish."""
        (self.folder / "go").touch()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def ends(self, code: int, within_s: float) -> float:
        """Wait for the end, check the exit code, and return the seconds that it took."""
        before = time.monotonic()
        try:
            found = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s} s\n{self.log()}") from None
        assert found == code, self.log()
        return time.monotonic() - before

    def log(self) -> str:
        """Return what it has logged."""
        return Path(self._log.name).read_text(encoding="utf-8")

    def closing(self) -> dict[str, Any]:
        """Return the counters of its last line."""
        events = [json.loads(line) for line in self.log().splitlines()]
        return next(event for event in reversed(events) if event["event"] == "consumer stopped")

    def close(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self._log.close()


@pytest.fixture
def consume(desk: Desk, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Yield a function that starts a consumer process; it is gone after the test."""
    processes: list[Process] = []

    def start(database_url: str | None = None, *, lease_s: float = 1, **settings: Any) -> Process:
        url = database_url or desk.database.url
        processes.append(Process(tmp_path, url, lease_s=lease_s, amqp_prefix=desk.prefix, **settings))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def test_sigterm_finishes_what_runs_and_hands_back_the_rest(desk: Desk, consume: Callable[..., Process]) -> None:
    """Running jobs finish under heartbeats, unstarted ones go back at once and uncharged, and the exit code is 0."""
    desk.submit(*(f"fast{number}" for number in range(400)))
    process = consume(consumer_concurrency=4, consumer_grace_s=60, consumer_heartbeat_s=0.3, lease_s=4)
    desk.done(400, timeout_s=30)
    desk.submit(*(f"slow{number}" for number in range(60)))
    until(lambda: len(list(process.folder.glob("started-slow*"))) == 4)
    process.signal()
    until(lambda: desk.database.count("attempts WHERE outcome = 'handed_back'") > 0)
    until(lambda: desk.states() == {"succeeded": 400, "running": 4, "ready": 56})
    # Longer than the lease: only heartbeats keep the running ones.
    expiry = desk.database.value("SELECT max(lease_expires_at) FROM {s}.outbox")
    passed = "SELECT min(lease_expires_at) > %s + interval '4500 milliseconds' FROM {s}.outbox WHERE phase = 'leased'"
    until(lambda: desk.database.value(passed, expiry))
    process.go()
    process.ends(0, 30)
    assert desk.states() == {"succeeded": 404, "ready": 56}
    assert desk.database.count("jobs WHERE state = 'ready' AND attempt_count > uncharged_attempts") == 0
    assert process.closing()["leases_lost"] == 0
    assert process.closing()["handed_back"] == desk.database.count("attempts WHERE outcome = 'handed_back'")
    why = "SELECT DISTINCT error_code FROM {s}.attempts WHERE outcome = 'handed_back'"
    assert ("worker_stopping",) in desk.database.rows(why)
    assert check_invariants(desk.database) == []


def test_idle_consumer_ends_at_once(desk: Desk, consume: Callable[..., Process]) -> None:
    """With nothing to do, SIGINT and SIGTERM alike end a consumer with 0 within a second or two."""
    process = consume()
    [job_id] = desk.submit("fast")
    until(lambda: desk.state(job_id) == "succeeded")
    process.signal(signal.SIGINT)
    assert process.ends(0, 30) < 4.5


ASYNC_KINDS = ["to_thread", "blocks", "stubborn"]


@pytest.mark.parametrize("name", ["forever", "thread", *ASYNC_KINDS, "apply"])
def test_grace_that_runs_out_ends_the_process_all_the_same(
    desk: Desk, consume: Callable[..., Process], name: str
) -> None:
    """User code that never returns, of any kind, is not waited for: exit code 1 soon after the grace period."""
    kinds = {"apply": OtherTask} | dict.fromkeys(ASYNC_KINDS, AsyncTask)
    process = consume(consumer_grace_s=1, lease_s=10)
    desk.submit(name, payload=kinds.get(name, Task))
    process.started(name)
    signalled = time.monotonic()
    process.signal()
    process.ends(1, 30)
    assert 0.9 < time.monotonic() - signalled < 11


def test_second_signal_lets_go_at_once(desk: Desk, consume: Callable[..., Process]) -> None:
    """The second SIGTERM does not wait for the grace period; the lease expires and the job runs elsewhere."""
    process = consume(consumer_grace_s=300, consumer_heartbeat_s=0.3, lease_s=4)
    [job_id] = desk.submit("forever")
    process.started("forever")
    process.signal()
    until(lambda: "consumer stopping" in process.log())
    process.signal()
    assert process.ends(1, 30) < 20
    assert desk.state(job_id) == "running"
    assert desk.database.value("SELECT lease_expires_at < {s}.clock() + interval '4 seconds' FROM {s}.outbox")


@pytest.mark.parametrize("trouble", ["down", "freeze"])
def test_sigterm_while_the_database_is_away(
    desk: Desk, consume: Callable[..., Process], db_proxy: Proxy, trouble: str
) -> None:
    """Without a database nothing can be written; the process ends within the grace period and a little."""
    process = consume(through(desk.database.url, db_proxy.port), consumer_grace_s=2, consumer_concurrency=2, lease_s=10)
    desk.submit("slow1", "slow2")
    process.started("slow1")
    process.started("slow2")
    getattr(db_proxy, trouble)()
    process.signal()
    process.go()
    process.ends(1, 30)


@pytest.mark.parametrize("trouble", ["down", "freeze"])
def test_sigterm_while_the_broker_is_away(
    desk: Desk, hints: Hints, consume: Callable[..., Process], amqp_url: str, amqp_proxy: Proxy, trouble: str
) -> None:
    """A broker that is gone or frozen delays the end by a few seconds at most, and spoils nothing."""
    process = consume(amqp_url=amqp_through(amqp_url, amqp_proxy.port), consumer_grace_s=60, lease_s=10)
    until(lambda: (hints.state() or (0, 0))[1] == 1)
    desk.submit("slow1")
    hints.hint(desk.release())
    process.started("slow1")
    getattr(amqp_proxy, trouble)()
    process.signal()
    process.go()
    assert process.ends(0, 60) < 30
    assert desk.states() == {"succeeded": 1}


def test_killed_consumers_job_runs_elsewhere_after_its_lease(desk: Desk, consume: Callable[..., Process]) -> None:
    """A consumer killed with SIGKILL loses one attempt of what it ran; another one finishes it after the lease."""
    first = consume(consumer_concurrency=2)
    [job_id] = desk.submit("slow")
    first.started("slow")
    first.process.kill()
    first.process.wait(30)
    first.go()
    consume(consumer_concurrency=2)
    desk.submit("fast1", "fast2")
    desk.done(3)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    claims = "SELECT extract(epoch FROM max(claimed_at) - min(claimed_at))::float8 FROM {s}.attempts WHERE job_id = %s"
    assert desk.database.value(claims, job_id) < 20
    assert check_invariants(desk.database) == []


def test_job_that_kills_its_worker_fails_after_its_attempts(desk: Desk, consume: Callable[..., Process]) -> None:
    """Each crash is charged: the third one ends the job as failed, and its neighbours have run meanwhile."""
    [job_id] = desk.submit("deadly")
    desk.submit("fast1", "fast2")
    for number in range(3):
        consume(consumer_concurrency=1).ends(137, 60)
        assert desk.database.value("SELECT attempt_count FROM {s}.jobs WHERE id = %s", job_id) == number + 1
    consume(consumer_concurrency=1)
    desk.done(1, "failed")
    desk.done(2)
    assert desk.outcomes(job_id) == ["lease_lost"] * 3
    assert desk.last_error(job_id)[:2] == ("lease_lost", "lease_expired")
    assert check_invariants(desk.database) == []


def test_consumer_killed_with_a_hundred_prefetched_hints(
    desk: Desk, hints: Hints, consume: Callable[..., Process], amqp_url: str, db_proxy: Proxy
) -> None:
    """Hints that a dead consumer had received but not decided go to another one at once; no attempt is charged."""
    process = consume(through(desk.database.url, db_proxy.port), amqp_url=amqp_url, consumer_concurrency=100)
    until(lambda: (hints.state() or (0, 0))[1] == 1)
    db_proxy.freeze()
    ids = desk.submit(*(f"fast{number}" for number in range(150)))
    hints.hint(desk.release())

    def taken() -> bool:
        ready, consumers = hints.state() or (150, 0)
        return ready <= 50 and consumers == 1

    until(taken)
    process.process.kill()
    process.process.wait(30)
    until(lambda: hints.state() == (150, 0))
    healthy = desk.start(handler(), amqp_url=amqp_url)
    desk.done(150)
    until(lambda: healthy.counted("hints_received") >= 150)
    assert desk.database.count("attempts") == len(ids)
    assert check_invariants(desk.database) == []


def test_consumer_killed_with_queues_of_its_own_slots_leaves_no_slot_taken(
    desk: Desk, consume: Callable[..., Process]
) -> None:
    """Each queue of a killed consumer has as many jobs running as its number says, and another one gets all done."""
    desk.submit(*(f"slow{number}" for number in range(6)))
    desk.submit(*(f"other{number}" for number in range(4)), payload=OtherTask)
    process = consume(consumer_queues="q=2,other=1", lease_s=2)
    running = "SELECT queue, count(*)::int FROM {s}.jobs WHERE state = 'running' GROUP BY queue"
    until(lambda: len(list(process.folder.glob("started-*"))) == 3, within_s=60)
    assert dict(desk.database.rows(running)) == {"q": 2, "other": 1}
    process.process.kill()
    process.process.wait(30)
    desk.start(handler(), handler(payload=OtherTask), queues=("q=2", "other=1"))
    desk.done(10)
    assert check_invariants(desk.database) == []
