"""Celery on RabbitMQ: late acknowledgement, publisher confirms, no results, no events, a prefetch that never runs dry.

Of its pools, `solo` drained most for each core: prefork pays a pipe for each job, threads the interpreter lock.

Not transactional: a job is sent after the caller's commit or before it; a crash between them loses or forges one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from measure.contender import NO_EXTRA
from measure.stamps import stamp

from peers._shared import InBroker, Writer

PREFETCH = 500
TASK = "noop"


def application(url: str, queue: str, *, confirm: bool = True) -> Celery:
    """Return the application of one side."""
    app = Celery("bench", broker=url)
    app.conf.update(
        broker_transport_options={"confirm_publish": confirm},
        broker_connection_retry_on_startup=True,
        task_acks_late=True,
        task_default_queue=queue,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        worker_prefetch_multiplier=PREFETCH,
        worker_send_task_events=False,
        worker_disable_rate_limits=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


class Submitter(Writer):
    """`send_task` with a confirmation each; the business row is not part of it."""

    def __init__(self, url: str, queue: str) -> None:
        self.app = application(url, queue)

    def open(self) -> None:
        """Connect."""
        self.producer: Any = self.app.amqp.Producer(self.app.connection_for_write(), auto_declare=True)

    def close(self) -> None:
        """Disconnect."""
        self.producer.connection.close()
        self.app.close()

    def one(self, number: int) -> None:
        """Send a job."""
        self.app.send_task(TASK, (number,), producer=self.producer)

    def many(self, numbers: Sequence[int]) -> None:
        """Send jobs."""
        for number in numbers:
            self.one(number)


class Contender(InBroker):
    """Celery with the queue in RabbitMQ."""

    name = "celery"
    packages = ("celery", "kombu", "amqp")
    settings = f"RabbitMQ classic durable, acks_late, confirm_publish, -P solo, prefetch {PREFETCH}"

    def prepare(self) -> None:
        """Declare the queue."""
        with application(self.servers.amqp_url, self.queue).connection_for_write() as connection:
            queues = application(self.servers.amqp_url, self.queue).amqp.queues
            queues[self.queue](connection.default_channel).declare()

    def fill(self, start: int, count: int) -> None:
        """Send a backlog, unconfirmed for the sake of time, and wait until the broker has it all."""
        submitter = Submitter(self.servers.amqp_url, self.queue)
        submitter.app = application(self.servers.amqp_url, self.queue, confirm=False)
        with submitter:
            submitter.many(range(start, start + count))
        self.filled += count
        self.queues.wait_for(self.queue, self.filled)

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers: a process each."""
        return [
            self.python("-m", "peers.peer_celery", extra={"BENCH_WORKER": f"w{index}", **extra})
            for index in range(workers)
        ]

    def submitter(self) -> Submitter:
        """Return a sender."""
        return Submitter(self.servers.amqp_url, self.queue)


CONTENDER = Contender


def work(app: Celery, *arguments: str) -> None:
    """Run a worker until SIGTERM."""

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def noop(number: int) -> None:
        stamp(number)

    name = f"{os.environ['BENCH_WORKER']}.{os.environ['BENCH_PREFIX']}@%h"
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-O", "fair", "-l", "ERROR", "-n", name)
    app.worker_main(["worker", "-P", "solo", *options, *arguments])


if __name__ == "__main__":
    work(application(os.environ["BENCH_AMQP_URL"], f"{os.environ['BENCH_PREFIX']}.{Contender.name}"))
