"""What one claim stands on: a database and queues of its own, real relays and consumers, and bounded waits."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crash.processes import TESTS, Process, Workshop
from fairness.work import TABLES, Numbered
from outbox import enqueue_many
from outbox.migrations import upgrade_database
from outbox.servers import Postgres, RabbitMQ, postgres, rabbitmq
from outbox.servers.instance import Instance, tail
from outbox.settings.urls import sqlalchemy_engine
from support.database import Database

START_S = 60.0
END_S = 30.0
CLAIM_S = 60.0
# A relay's lost hints are owed again soon, so that a claim which kills does not wait for minutes.
_SETTINGS = {"OUTBOX_RELAY_REHINT_AFTER_S": "2", "OUTBOX_RELAY_REHINT_BUSY_AFTER_S": "4"}
_CONNECTIONS = {"max_connections": "400", "max_wal_size": "4GB"}


class NotInTime(Exception):  # noqa: N818 - the name says what it means
    """Something that had to happen for a measurement did not."""


@dataclass
class Ground:
    """The servers of one run, private to it, with their defaults: commits are durable."""

    postgres: Postgres
    rabbitmq: RabbitMQ
    instance: Instance
    folder: Path


@contextmanager
def ground() -> Iterator[Ground]:
    """Start the servers, and end all that was started."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-fairness-")))
        server = stack.enter_context(postgres(private=True, settings=_CONNECTIONS))
        broker = stack.enter_context(rabbitmq(private=True))
        instance = Instance("fairness", None)
        stack.callback(instance.close)
        yield Ground(server, broker, instance, folder)


class World:
    """One claim's own. `database` is what decides."""

    def __init__(self, ground: Ground, database: Database, folder: Path, prefix: str) -> None:
        self.database = database
        self._amqp_url = ground.rabbitmq.url
        self._prefix = prefix
        self._workshop = Workshop(ground.instance, folder)
        self.engine: sa.Engine = database.keep(sqlalchemy_engine(database.url))

    def relays(self, count: int) -> list[Process]:
        """Start relays."""
        return [self._workshop.outbox("relay", "relay", "--json", env=self._environment()) for _ in range(count)]

    def consumers(self, count: int, handlers: Sequence[str], *options: str, **env: str) -> list[Process]:
        """Start consumers of handlers of `fairness.work`."""
        names = [f"fairness.work:{name}" for name in handlers]
        environment = self._environment() | env
        return [
            self._workshop.outbox("consumer", "consume", "--json", *names, *options, env=environment)
            for _ in range(count)
        ]

    def stand(self, processes: Sequence[Process]) -> None:
        """Wait until processes have started to work."""
        self.until(lambda: all(process.stands() for process in processes), "all processes have started", START_S)

    def submit(self, payload: type[Numbered], numbers: Sequence[int], **options: Any) -> None:
        """Commit jobs."""
        with self.engine.begin() as connection:
            enqueue_many(connection, [payload(number=number) for number in numbers], **options)

    def until(self, condition: Callable[[], Any], what: str, within_s: float) -> Any:
        """Wait for a condition and return its value; `NotInTime` names what did not happen."""
        deadline = time.monotonic() + within_s
        while not (value := condition()):
            self._none_fell()
            if time.monotonic() > deadline:
                raise NotInTime(f"not within {within_s:g} s: {what}")
            time.sleep(0.03)
        return value

    def now(self) -> datetime:
        """Return the database's time."""
        now: datetime = self.database.value("SELECT {s}.clock()")
        return now

    def claimed_until(self, instant: datetime) -> None:
        """Wait until no hint is out any more that went out before an instant: it was claimed, or is owed again."""
        out = "outbox WHERE phase = 'released' AND released_at < %s"
        self.until(lambda: self.database.count(out, instant) == 0, f"hints of before {instant} are claimed", CLAIM_S)

    def drained(self, queue: str, within_s: float) -> None:
        """Wait until a queue has no job left that has not ended."""
        left = "outbox WHERE queue = %s"
        self.until(lambda: self.database.count(left, queue) == 0, f"queue {queue} is empty", within_s)

    def end(self, processes: Sequence[Process]) -> None:
        """Ask processes to end, and wait until they have."""
        for process in processes:
            process.ended_by_us = True
            process.popen.terminate()
        self.until(lambda: all(process.code is not None for process in processes), "processes have ended", END_S)

    def close(self) -> None:
        """End every process at once."""
        self._workshop.close()

    def _none_fell(self) -> None:
        for process in self._workshop.processes:
            if process.code not in (None, 0) and not process.ended_by_us:
                raise NotInTime(f"{process.name} fell over with {process.code}: {tail(process.log)}")

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OUTBOX_", "FAIRNESS_"))}
        return inherited | {
            **_SETTINGS,
            "OUTBOX_DATABASE_URL": self.database.url,
            "OUTBOX_AMQP_URL": self._amqp_url,
            "OUTBOX_AMQP_PREFIX": self._prefix,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
        }


@contextmanager
def world(ground: Ground) -> Iterator[World]:
    """Make one, and drop it."""
    name = f"fairness_{uuid.uuid4().hex[:8]}"
    folder = ground.folder / name
    folder.mkdir()
    url = ground.postgres.create_database(name)
    upgrade_database(url, "outbox")
    database = Database(url)
    database.raw.execute(TABLES)
    made = World(ground, database, folder, name)
    try:
        yield made
    finally:
        made.close()
        database.close()
        ground.postgres.drop_database(name)
