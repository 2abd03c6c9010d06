"""outbox-relay: a SQLAlchemy Session that writes, `outbox relay` and `outbox consume` as commands. Default settings."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Self

import psycopg
import sqlalchemy as sa
from measure.broker import channel
from measure.contender import ABILITIES, NO_EXTRA, Base, Servers, Submitter, chunks
from measure.targets import OURS
from pika.exceptions import ChannelClosedByBroker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from contenders.workload import Applied, AsyncNoop, Noop, Numbered, Slept
from outbox import enqueue, enqueue_many
from outbox.migrations import upgrade_database
from outbox_schemas.topology import broker_queue

NOTE = "a row of the service"
_ROW = sa.text("INSERT INTO business (id, note) VALUES (:id, :note)")
# The quickest way that SQLAlchemy has for a thousand rows; what it costs is the service's, not the queue's.
_ROWS = sa.text("INSERT INTO business (id, note) SELECT n, :note FROM unnest(CAST(:numbers AS bigint[])) AS n")


class _Model(DeclarativeBase):
    """The service's models."""


class Business(_Model):
    """A row of the service."""

    __tablename__ = "business"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    note: Mapped[str]


class Outbox(Base):
    """Jobs for an `AsyncHandler`, one relay, so many consumers."""

    name: ClassVar[str] = OURS
    packages: ClassVar[tuple[str, ...]] = ("outbox-relay", "sqlalchemy", "psycopg", "pika", "pydantic")
    settings: ClassVar[str] = (
        "defaults; AsyncHandler; quorum queue; writer: SQLAlchemy Session, psycopg with its own defaults, "
        "the row by a text() INSERT"
    )
    can: ClassVar[frozenset[str]] = ABILITIES
    payload: ClassVar[type[Numbered]] = AsyncNoop

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self._looking: psycopg.Connection[Any] | None = None

    @cached_property
    def engine(self) -> sa.Engine:
        """The writing service's engine, as a service makes it: the driver prepares what runs often, as peers' do."""
        url = sa.make_url(self.servers.database_url).set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_size=20)

    def environment(self) -> dict[str, str]:
        """Return the addresses as the commands read them."""
        return super().environment() | {
            "OUTBOX_DATABASE_URL": self.servers.database_url,
            "OUTBOX_AMQP_URL": self.servers.amqp_url,
            "OUTBOX_AMQP_PREFIX": self.servers.prefix,
        }

    def prepare(self) -> None:
        """Install the schema."""
        upgrade_database(self.servers.database_url, "outbox")
        self._looking = psycopg.connect(self.servers.database_url, autocommit=True)

    def reset(self) -> None:
        """Empty the tables and the queue."""
        self._ask("TRUNCATE outbox.jobs, outbox.outbox, outbox.attempts")
        # Closed by the broker: there is no such queue yet.
        with channel(self.servers.amqp_url) as broker, suppress(ChannelClosedByBroker):
            broker.queue_purge(self.hint_queue)

    @property
    def hint_queue(self) -> str:
        """The broker's name of the one queue."""
        return broker_queue(self.servers.prefix, self.payload.queue)

    def fill(self, start: int, count: int) -> None:
        """Submit through `enqueue_many`."""
        for numbers in chunks(start, count):
            with self.engine.begin() as connection:
                enqueue_many(connection, (self.payload(number=number) for number in numbers))

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start one relay, with wide runways where nobody consumes, and so many consumers."""
        program = ("-m", "outbox", "relay") if workers else ("-m", "contenders.wide_relay")
        relay = self.python(*program, extra=extra, label="relay")
        return [relay, *(self.consumer(extra=extra) for _ in range(workers))]

    def consumer(self, *, extra: Mapping[str, str] = NO_EXTRA) -> subprocess.Popen[bytes]:
        """Start one consumer."""
        return self.python("-m", "outbox", "consume", "contenders.workload", extra=extra, label="consumer")

    def left(self) -> int:
        """Count outbox rows: a job that has not ended has one."""
        return self._ask("SELECT count(*) FROM outbox.outbox")

    def unrelayed(self) -> int:
        """Count what is owed."""
        return self._ask("SELECT count(*) FROM outbox.outbox WHERE phase = 'owed'")

    def submitter(self) -> Submitter:
        """Return a Session."""
        return _Writer(self.engine, self.payload)

    def _ask(self, query: str) -> int:
        assert self._looking is not None
        cursor = self._looking.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return int(row[0]) if row else 0


class _Writer:
    """A service that writes a row by a statement of its own, as the peers' writers do."""

    def __init__(self, engine: sa.Engine, payload: type[Numbered]) -> None:
        self._session = Session(engine)
        self._payload = payload

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def one(self, number: int) -> None:
        """Commit one row and one job."""
        self._session.execute(_ROW, {"id": number, "note": NOTE})
        enqueue(self._session, self._payload(number=number))
        self._session.commit()

    def many(self, numbers: Sequence[int]) -> None:
        """Commit a row and a job for each number."""
        self._session.execute(_ROWS, {"note": NOTE, "numbers": list(numbers)})
        enqueue_many(self._session, (self._payload(number=number) for number in numbers))
        self._session.commit()


class _FlushingWriter(_Writer):
    """A service with an ORM-mapped row of its own."""

    def one(self, number: int) -> None:
        """Commit one row, flushed by the ORM, and one job."""
        self._session.add(Business(id=number, note=NOTE))
        enqueue(self._session, self._payload(number=number))
        self._session.commit()


class Flushing(Outbox):
    """The same submission beside a row that the ORM flushes."""

    name = f"{OURS}, ORM flush"
    settings = "defaults; writer: SQLAlchemy Session, psycopg with its own defaults, the row by session.add()"
    can: ClassVar[frozenset[str]] = frozenset({"enqueue_one"})

    def submitter(self) -> Submitter:
        """Return a Session with a mapped row."""
        return _FlushingWriter(self.engine, self.payload)


class Threads(Outbox):
    """The same for a `Handler`."""

    name = f"{OURS}, Handler"
    settings = "defaults; Handler"
    can = frozenset({"drain"})
    payload = Noop


class Applying(Outbox):
    """A row written by `apply` for each job, in eight slots."""

    name = f"{OURS}, apply"
    settings = "defaults, which are eight slots; Handler with apply"
    can: ClassVar[frozenset[str]] = frozenset()
    payload = Applied


class Sleeping(Outbox):
    """Five milliseconds of sleep for each job, in fifty slots."""

    name = f"{OURS}, sleep"
    settings = "fifty slots; Handler"
    can: ClassVar[frozenset[str]] = frozenset()
    payload = Slept


CONTENDER = Outbox
