"""What measurements and rehearsals stand on: private servers, a database, real processes, bounded waits."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa

from crash.processes import TESTS, Process, Workshop
from outbox.migrations import upgrade_database
from outbox.servers import Postgres, RabbitMQ, postgres, rabbitmq
from outbox.servers.instance import Instance, tail
from outbox.settings.urls import sqlalchemy_engine
from support.database import Database
from support.waiting import NotTrue, until

START_S = 60.0
END_S = 30.0


class NotInTime(Exception):  # noqa: N818 - the name says what it means
    """Something that had to happen did not."""


@dataclass
class Ground:
    """The servers of one run, private to it, with their defaults: commits are durable."""

    name: str
    postgres: Postgres
    rabbitmq: RabbitMQ
    instance: Instance
    folder: Path


@contextmanager
def ground(name: str, settings: Mapping[str, str]) -> Iterator[Ground]:
    """Start the servers, PostgreSQL with these settings, and end all that was started."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"outbox-{name}-")))
        server = stack.enter_context(postgres(private=True, settings=settings))
        broker = stack.enter_context(rabbitmq(private=True))
        instance = Instance(name, None)
        stack.callback(instance.close)
        yield Ground(name, server, broker, instance, folder)


class CannotBeMade(Exception):  # noqa: N818 - the name says what it means
    """This machine lacks what a situation needs."""


class World:
    """A database and queues of its own, and the processes that use them. `database` is what decides."""

    settings: ClassVar[Mapping[str, str]] = {}
    """What relays and consumers are told beside their addresses."""

    def __init__(self, ground: Ground, database: Database, folder: Path, prefix: str) -> None:
        self.ground = ground
        self.database = database
        self.address = database.url
        self.folder = folder
        self.engine: sa.Engine = database.keep(sqlalchemy_engine(database.url))
        self.closing = ExitStack()
        """What is done once the processes have ended."""
        self._prefix = prefix
        self._workshop = Workshop(ground.instance, folder)

    def stand(self, processes: Sequence[Process]) -> None:
        """Wait until processes have started to work."""
        self.until(lambda: all(process.stands() for process in processes), "all processes have started", START_S)

    def until(self, condition: Callable[[], Any], what: str, within_s: float) -> Any:
        """Wait for a condition and return its value; `NotInTime` names what did not happen."""

        def seen() -> Any:
            value = condition()
            if not value:
                self._none_fell()
            return value

        try:
            return until(seen, within_s=within_s, every_s=0.03)
        except NotTrue:
            raise NotInTime(f"not within {within_s:g} s: {what}") from None

    def end(self, processes: Sequence[Process]) -> None:
        """Ask processes to end, and wait until they have."""
        for process in processes:
            process.ended_by_us = True
            process.popen.terminate()
        self.until(lambda: all(process.code is not None for process in processes), "processes have ended", END_S)

    def close(self) -> None:
        """End every process at once, then close what else there is."""
        try:
            self._workshop.close()
        finally:
            self.closing.close()

    def environment(self) -> dict[str, str]:
        """Return what a process or a command of this world finds around it."""
        foreign = ("OUTBOX_", "OTEL_", "FAIRNESS_", "REHEARSE_")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return inherited | {
            **self.settings,
            "OUTBOX_DATABASE_URL": self.address,
            "OUTBOX_AMQP_URL": self.ground.rabbitmq.url,
            "OUTBOX_AMQP_PREFIX": self._prefix,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
        }

    def _none_fell(self) -> None:
        for process in self._workshop.processes:
            if process.code not in (None, 0) and not process.ended_by_us:
                raise NotInTime(f"{process.name} fell over with {process.code}: {tail(process.log)}")

    @classmethod
    @contextmanager
    def on(cls, ground: Ground, tables: str) -> Iterator[Any]:
        """Make a world with tables of its own beside ours, and drop it."""
        name = f"{ground.name}_{uuid.uuid4().hex[:8]}"
        folder = ground.folder / name
        folder.mkdir()
        url = ground.postgres.create_database(name)
        upgrade_database(url, "outbox")
        database = Database(url)
        database.raw.execute(tables.encode())
        made = cls(ground, database, folder, name)
        try:
            yield made
        finally:
            made.close()
            database.close()
            if ground.postgres.pid is not None:
                ground.postgres.drop_database(name)
