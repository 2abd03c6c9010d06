"""Taskiq on RabbitMQ with aio-pika: a quorum queue (its default), uvloop, prefetch and slots that never run dry.

Not transactional: a job is sent after the caller's commit or before it; a crash between them loses or forges one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from measure.contender import NO_EXTRA
from measure.stamps import stamp
from taskiq import AsyncTaskiqDecoratedTask
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

from peers._shared import AsyncWriter, InBroker

PREFETCH = 500
SLOTS = 500


def make_broker(url: str, queue: str) -> AioPikaBroker:
    """Return a broker of one side."""
    exchange = Exchange(name=queue)
    return AioPikaBroker(
        url,
        qos=PREFETCH,
        exchange=exchange,
        task_queues=[Queue(name=queue)],
        dead_letter_queue=Queue(name=f"{queue}.dead"),
    )


def noop_task(broker: AioPikaBroker) -> AsyncTaskiqDecoratedTask[[int], Coroutine[Any, Any, None]]:
    """Return the task on a broker."""

    @broker.task(task_name="noop")
    async def noop(number: int) -> None:
        stamp(number)

    return noop


def worker_broker() -> AioPikaBroker:
    """Return the worker's broker; `taskiq worker` calls this."""
    broker = make_broker(os.environ["BENCH_AMQP_URL"], f"{os.environ['BENCH_PREFIX']}.{Contender.name}")
    noop_task(broker)
    return broker


class Submitter(AsyncWriter):
    """`kiq` with a confirmation each (aio-pika's channels always confirm); the business row is not part of it."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__()
        self.broker = make_broker(url, queue)
        self.noop = noop_task(self.broker)

    def open(self) -> None:
        """Connect and declare the queues."""
        self.run(self.broker.startup())

    def close(self) -> None:
        """Disconnect."""
        self.run(self.broker.shutdown())
        self.loop.close()

    async def submit(self, number: int) -> None:
        """Send a job."""
        await self.noop.kiq(number)

    async def submit_many(self, numbers: Sequence[int]) -> None:
        """Send jobs, all at once."""
        await asyncio.gather(*(self.noop.kiq(number) for number in numbers))


class Contender(InBroker):
    """Taskiq with the queue in RabbitMQ."""

    name = "taskiq"
    packages = ("taskiq", "taskiq-aio-pika", "aio-pika", "uvloop")
    settings = f"RabbitMQ quorum queue, confirms, --workers 1 each, qos {PREFETCH}, --max-async-tasks {SLOTS}, uvloop"

    def prepare(self) -> None:
        """Declare exchange and queues."""
        with self.submitter():
            pass

    def fill(self, start: int, count: int) -> None:
        """Send a backlog."""
        with self.submitter() as submitter:
            for first in range(start, start + count, 500):
                submitter.many(range(first, min(first + 500, start + count)))
        self.filled += count
        self.queues.wait_for(self.queue, self.filled)

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers: a main process with one worker process each."""
        options = ("--workers", "1", "--max-async-tasks", str(SLOTS), "--max-prefetch", str(PREFETCH))
        quiet = ("--log-level", "WARNING")
        return [
            self.python("-m", "taskiq", "worker", "peers.peer_taskiq:worker_broker", *options, *quiet, extra=extra)
            for _ in range(workers)
        ]

    def submitter(self) -> Submitter:
        """Return a sender."""
        return Submitter(self.servers.amqp_url, self.queue)


CONTENDER = Contender
