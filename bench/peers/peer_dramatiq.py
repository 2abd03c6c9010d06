"""Dramatiq on RabbitMQ: eight threads a process, prefetch 500, publisher confirms, the default middleware.

Not transactional: a job is sent after the caller's commit or before it; a crash between them loses or forges one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from measure.contender import NO_EXTRA
from measure.stamps import stamp

from peers._shared import InBroker, Writer

THREADS = 8
PREFETCH = 500


def noop_actor(broker: RabbitmqBroker, queue: str) -> dramatiq.Actor[[int], None]:
    """Return the actor on a broker."""

    @dramatiq.actor(broker=broker, queue_name=queue, actor_name="noop")
    def noop(number: int) -> None:
        stamp(number)

    return noop


def setup() -> None:
    """Set the worker's broker; `dramatiq` calls this."""
    broker = RabbitmqBroker(url=os.environ["BENCH_AMQP_URL"], confirm_delivery=True)
    dramatiq.set_broker(broker)
    noop_actor(broker, f"{os.environ['BENCH_PREFIX']}.{Contender.name}")


class Submitter(Writer):
    """`send` with a confirmation each; the business row is not part of it."""

    def __init__(self, url: str, queue: str, *, confirm: bool = True) -> None:
        self.broker = RabbitmqBroker(url=url, confirm_delivery=confirm)
        self.noop = noop_actor(self.broker, queue)

    def close(self) -> None:
        """Disconnect."""
        self.broker.close()

    def one(self, number: int) -> None:
        """Send a job."""
        self.noop.send(number)

    def many(self, numbers: Sequence[int]) -> None:
        """Send jobs."""
        for number in numbers:
            self.noop.send(number)


class Contender(InBroker):
    """Dramatiq with the queue in RabbitMQ."""

    name = "dramatiq"
    packages = ("dramatiq", "pika")
    settings = f"RabbitMQ classic durable, confirm_delivery, -p 1 -t {THREADS} for each worker, prefetch {PREFETCH}"

    def prepare(self) -> None:
        """Declare the queues."""
        with self.submitter() as submitter:
            submitter.broker.declare_queue(self.queue, ensure=True)

    def fill(self, start: int, count: int) -> None:
        """Send a backlog, unconfirmed for the sake of time, and wait until the broker has it all."""
        with Submitter(self.servers.amqp_url, self.queue, confirm=False) as submitter:
            submitter.many(range(start, start + count))
        self.filled += count
        self.queues.wait_for(self.queue, self.filled)

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers: a main process with one worker process each."""
        options = ("-p", "1", "-t", str(THREADS), "--skip-logging")
        environment = {"dramatiq_queue_prefetch": str(PREFETCH), **extra}
        return [
            self.python("-m", "dramatiq", "peers.peer_dramatiq:setup", *options, extra=environment)
            for _ in range(workers)
        ]

    def submitter(self) -> Submitter:
        """Return a sender."""
        return Submitter(self.servers.amqp_url, self.queue)


CONTENDER = Contender
