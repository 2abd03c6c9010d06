"""What several peers need: a plain look into their database, their queues' depth, writers on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit, urlunsplit

import pika
import psycopg
from measure.contender import Base, Servers

BUSINESS_ONE = "INSERT INTO business (id, note) VALUES (%s, %s)"
BUSINESS_MANY = "INSERT INTO business (id, note) SELECT id, 'note ' || id FROM unnest(%s::bigint[]) AS id"


def with_scheme(url: str, scheme: str) -> str:
    """Return a database URL for another driver, for instance with `postgresql+asyncpg`."""
    return urlunsplit(urlsplit(url)._replace(scheme=scheme))


class InDatabase(Base):
    """A contender that keeps its jobs in PostgreSQL."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self._looking: psycopg.Connection[tuple[Any, ...]] | None = None

    @property
    def looking(self) -> psycopg.Connection[tuple[Any, ...]]:
        """An autocommit connection of the harness's side, for counting and truncating."""
        if self._looking is None or self._looking.closed:
            self._looking = psycopg.connect(self.servers.database_url, autocommit=True)
        return self._looking

    def count(self, query: str) -> int:
        """Return the one number that a query gives."""
        row = self.looking.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0


class InBroker(Base):
    """A contender that keeps its jobs in RabbitMQ alone: a job is done once it has run and its queue is empty."""

    name: ClassVar[str]
    can: ClassVar[frozenset[str]] = frozenset({"drain", "latency"})
    from_call: ClassVar[bool] = (
        True  # nothing is committed: its latency counts from the call, which waits for a confirm
    )

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.queue = f"{servers.prefix}.{self.name}"
        self.queues = Queues(servers.amqp_url)

    def reset(self) -> None:
        """Forget all jobs."""
        self.filled = 0
        self.queues.purge(self.queue)

    def left(self) -> int:
        """Count jobs that have not started, or whose message still waits."""
        waiting = self.left_by_stamps()
        return waiting if waiting > 0 else self.queues.depth(self.queue)


class Writer:
    """The context manager around a writer's connection: subclasses open and close it."""

    def open(self) -> None:
        """Connect."""

    def close(self) -> None:
        """Disconnect."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncWriter(Writer):
    """A writer whose library is asynchronous: it lives on an event loop of its own (uvloop's where it is installed)."""

    def __init__(self) -> None:
        self.loop = new_loop()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end on this writer's loop."""
        return self.loop.run_until_complete(coroutine)

    def one(self, number: int) -> None:
        """Commit business row and job."""
        self.run(self.submit(number))

    def many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs in one transaction."""
        self.run(self.submit_many(numbers))

    async def submit(self, number: int) -> None:
        """Do what `one` promises."""
        raise NotImplementedError

    async def submit_many(self, numbers: Sequence[int]) -> None:
        """Do what `many` promises."""
        raise NotImplementedError


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the fastest event loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - it is not installed everywhere
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _purge(queue: str, channel: Any) -> None:
    channel.queue_purge(queue)


class Queues:
    """A connection to the broker for making, emptying and counting queues; reconnects after the broker hung up."""

    def __init__(self, url: str) -> None:
        self._parameters = pika.URLParameters(url)
        self._connection: pika.BlockingConnection | None = None

    def depth(self, queue: str) -> int:
        """Return how many messages wait in a queue; those that a consumer holds unacknowledged don't count."""
        return int(self._do(lambda channel: channel.queue_declare(queue, passive=True)).method.message_count)

    def purge(self, *queues: str) -> None:
        """Empty queues; one that doesn't exist is empty."""
        for queue in queues:
            try:
                self._do(partial(_purge, queue))
            except pika.exceptions.ChannelClosedByBroker:
                continue

    def declare_quorum(self, queue: str) -> None:
        """Make a durable quorum queue."""
        arguments = {"x-queue-type": "quorum"}
        self._do(lambda channel: channel.queue_declare(queue, durable=True, arguments=arguments))

    def wait_for(self, queue: str, count: int, timeout_s: float = 60) -> None:
        """Wait until a queue holds so many messages; `TimeoutError` if it doesn't come to that."""
        end = time.monotonic() + timeout_s
        while self.depth(queue) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{queue} holds {self.depth(queue)} of {count} messages after {timeout_s:g} s")
            time.sleep(0.02)

    def _do(self, act: Callable[[Any], Any]) -> Any:
        try:
            return self._on_channel(act)
        except (pika.exceptions.ConnectionClosed, pika.exceptions.StreamLostError):
            self._connection = None  # it was idle longer than its heartbeat
            return self._on_channel(act)

    def _on_channel(self, act: Callable[[Any], Any]) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = pika.BlockingConnection(self._parameters)
        channel = self._connection.channel()
        result = act(channel)
        channel.close()
        return result
