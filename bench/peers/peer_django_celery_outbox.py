"""django-celery-outbox: its relay at the batch size and idle time that its guide gives for load and low latency.

A relay publishes with a confirmation each and deletes a batch afterwards. The workers are Celery's, as there.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import django
import structlog
from celery import Celery
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django_celery_outbox import OutboxCelery
from measure.contender import NO_EXTRA, Servers, chunks

from peers import peer_celery
from peers._shared import BUSINESS_MANY, BUSINESS_ONE, InDatabase, Queues, Writer

BATCH = 500
IDLE_S = 0.1
CONCURRENCY = 1
NAME = "django-celery-outbox"


def database(url: str) -> dict[str, Any]:
    """Return Django's settings of a database."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": None,  # connections persist
    }


def set_up(url: str) -> None:
    """Set Django up for a database, or move it over to another one."""
    if settings.configured:
        connections["default"].close()
        connections["default"].settings_dict.update(database(url))
        return
    settings.configure(
        DATABASES={"default": database(url)},
        INSTALLED_APPS=["django_celery_outbox"],
        CELERY_OUTBOX_APP=f"{__name__ if __name__ != '__main__' else __spec__.name}.app",
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()


def configure(app: Celery, url: str, queue: str) -> Celery:
    """Point an application at broker and queue."""
    app.conf.update(peer_celery.application(url, queue).conf.changes)
    app.conf.update(broker_url=url, task_default_queue_type="quorum")
    return app


app = OutboxCelery("bench")  # the relay finds it here by its dotted path
if "BENCH_AMQP_URL" in os.environ:
    configure(app, os.environ["BENCH_AMQP_URL"], f"{os.environ['BENCH_PREFIX']}.{NAME}")


class Submitter(Writer):
    """`send_task` on an `OutboxCelery` in `transaction.atomic`."""

    def __init__(self, url: str) -> None:
        set_up(url)

    def close(self) -> None:
        """Disconnect."""
        connections["default"].close()

    def one(self, number: int) -> None:
        """Commit business row and job."""
        with transaction.atomic():
            with connections["default"].cursor() as cursor:
                cursor.execute(BUSINESS_ONE, (number, f"note {number}"))
            app.send_task(peer_celery.TASK, (number,))

    def many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs; it has no call for many."""
        with transaction.atomic():
            with connections["default"].cursor() as cursor:
                cursor.execute(BUSINESS_MANY, [list(numbers)])
            self.jobs(numbers)

    def jobs(self, numbers: Sequence[int]) -> None:
        """Insert the jobs alone."""
        for number in numbers:
            app.send_task(peer_celery.TASK, (number,))


class Contender(InDatabase):
    """The outbox table in the same database, the messages in RabbitMQ."""

    name = NAME
    packages = ("django-celery-outbox", "django", "celery", "psycopg")
    settings = (
        f"RabbitMQ quorum queue, confirms, relay --batch-size {BATCH} --idle-time {IDLE_S} "
        f"--publish-concurrency {CONCURRENCY}; workers as Celery's"
    )
    can = frozenset({"relay", "drain", "enqueue_one", "enqueue_many", "latency"})

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.queue = f"{servers.prefix}.{NAME}"
        self.queues = Queues(servers.amqp_url)

    def prepare(self) -> None:
        """Migrate, and declare the queue."""
        set_up(self.servers.database_url)
        call_command("migrate", verbosity=0)
        configure(app, self.servers.amqp_url, self.queue)
        with app.connection_for_write() as connection:
            app.amqp.queues[self.queue](connection.default_channel).declare()

    def reset(self) -> None:
        """Forget all jobs."""
        self.filled = 0
        self.looking.execute("TRUNCATE celery_outbox, celery_outbox_dead_letter")
        self.queues.purge(self.queue)

    def fill(self, start: int, count: int) -> None:
        """Insert a backlog."""
        with self.submitter() as submitter:
            for numbers in chunks(start, count):
                with transaction.atomic():
                    submitter.jobs(numbers)
        self.filled += count

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start a relay, and workers."""
        module = "peers.peer_django_celery_outbox"
        relay = self.python("-m", module, "relay", extra=extra, label="relay")
        names = ({"BENCH_WORKER": f"w{index}", **extra} for index in range(workers))
        return [relay, *(self.python("-m", module, "work", extra=name) for name in names)]

    def left(self) -> int:
        """Count jobs whose message isn't confirmed yet, that haven't started, or whose message still waits."""
        waiting = max(self.unrelayed(), self.left_by_stamps())
        return waiting if waiting > 0 else self.queues.depth(self.queue)

    def unrelayed(self) -> int:
        """Count the rows that are still in the outbox."""
        return self.count("SELECT count(*) FROM celery_outbox")

    def submitter(self) -> Submitter:
        """Return a writer on Django's ORM."""
        return Submitter(self.servers.database_url)


CONTENDER = Contender


def main(part: str) -> None:
    """Run the relay or a worker until SIGTERM."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    set_up(os.environ["BENCH_DATABASE_URL"])
    if part == "work":
        peer_celery.work(app)
    options = {"batch_size": BATCH, "idle_time": IDLE_S, "publish_concurrency": CONCURRENCY}
    call_command("celery_outbox_relay", **options)


if __name__ == "__main__":
    main(sys.argv[1])
