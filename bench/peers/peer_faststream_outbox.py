"""faststream-outbox as a relay to RabbitMQ: asyncpg, batched fetches and batched deletes, confirms, a quorum queue.

A row is deleted once its message is confirmed. The workers are plain FastStream subscribers of that queue.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
import uvloop
from faststream import FastStream
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue
from faststream_outbox import OutboxBroker, make_outbox_table, outbox_autovacuum_ddl
from measure.contender import NO_EXTRA, Servers, chunks
from measure.stamps import stamp
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from peers._shared import AsyncWriter, InDatabase, Queues, with_scheme

SLOTS = 20
FETCH = 500
FLUSH = 100
PREFETCH = 500
QUEUE = "bench"

ONE_ROW = sa.text("INSERT INTO business (id, note) VALUES (:id, :note)")
outbox_table = make_outbox_table(sa.MetaData(), table_name="outbox")


class ServiceBase(DeclarativeBase):
    """The service's ORM."""


class Business(ServiceBase):
    """The business row."""

    __tablename__ = "business"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    note: Mapped[str]


class Submitter(AsyncWriter):
    """`publish` and `publish_batch` on the `AsyncSession` that holds the caller's transaction."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.engine = create_async_engine(with_scheme(url, "postgresql+asyncpg"), pool_size=2)
        self.broker = OutboxBroker(self.engine, outbox_table=outbox_table)

    def close(self) -> None:
        """Disconnect."""
        self.run(self.engine.dispose())
        self.loop.close()

    async def submit(self, number: int) -> None:
        """Commit business row and job."""
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            await session.execute(ONE_ROW, {"id": number, "note": f"note {number}"})
            await self.broker.publish({"number": number}, queue=QUEUE, session=session)

    async def submit_many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs."""
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            rows = [{"id": number, "note": f"note {number}"} for number in numbers]
            await session.execute(sa.insert(Business), rows)
            await self.publish(session, numbers)

    async def publish(self, session: AsyncSession, numbers: Sequence[int]) -> None:
        """Insert the jobs alone."""
        await self.broker.publish_batch(*({"number": number} for number in numbers), queue=QUEUE, session=session)


class Contender(InDatabase):
    """The outbox table in the same database, the messages in RabbitMQ."""

    name = "faststream-outbox"
    packages = ("faststream-outbox", "faststream", "aio-pika", "asyncpg", "sqlalchemy", "uvloop")
    settings = (
        f"RabbitMQ quorum queue, confirms, max_workers={SLOTS}, fetch_batch_size={FETCH}, "
        f"terminal_flush_batch_size={FLUSH}, uvloop, its autovacuum settings; workers with prefetch {PREFETCH}"
    )
    can = frozenset({"relay", "drain", "enqueue_one", "enqueue_many", "latency"})

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.queue = queue_name(servers.prefix)
        self.queues = Queues(servers.amqp_url)

    def prepare(self) -> None:
        """Make table and queue."""
        engine = sa.create_engine(with_scheme(self.servers.database_url, "postgresql+psycopg"))
        outbox_table.metadata.create_all(engine)
        engine.dispose()
        self.looking.execute(outbox_autovacuum_ddl("outbox").encode())
        self.queues.declare_quorum(self.queue)

    def reset(self) -> None:
        """Forget all jobs."""
        self.filled = 0
        self.looking.execute("TRUNCATE outbox")
        self.queues.purge(self.queue)

    def fill(self, start: int, count: int) -> None:
        """Insert a backlog."""

        async def publish(submitter: Submitter) -> None:
            for numbers in chunks(start, count, 5000):
                async with AsyncSession(submitter.engine) as session, session.begin():
                    await submitter.publish(session, numbers)

        with self.submitter() as submitter:
            submitter.run(publish(submitter))
        self.filled += count

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start a relay, and workers."""
        relay = self.python("-m", "peers.peer_faststream_outbox", "relay", extra=extra, label="relay")
        return [
            relay,
            *(self.python("-m", "peers.peer_faststream_outbox", "work", extra=extra) for _ in range(workers)),
        ]

    def left(self) -> int:
        """Count jobs whose message isn't confirmed yet or whose handler hasn't started."""
        return max(self.unrelayed(), self.left_by_stamps())

    def unrelayed(self) -> int:
        """Count the rows that are still in the outbox."""
        return self.count("SELECT count(*) FROM outbox")

    def submitter(self) -> Submitter:
        """Return a writer on an `AsyncSession`."""
        return Submitter(self.servers.database_url)


CONTENDER = Contender


def queue_name(prefix: str) -> str:
    """Return the name of the queue on the broker."""
    return f"{prefix}.faststream-outbox"


def application(part: str) -> FastStream:
    """Return the relay or a worker."""
    queue = RabbitQueue(queue_name(os.environ["BENCH_PREFIX"]), durable=True, queue_type=QueueType.QUORUM)
    if part == "work":
        return worker(queue)
    rabbit = RabbitBroker(os.environ["BENCH_AMQP_URL"], logger=None)
    url = with_scheme(os.environ["BENCH_DATABASE_URL"], "postgresql+asyncpg")
    outbox = OutboxBroker(create_async_engine(url, pool_size=SLOTS + 5), outbox_table=outbox_table, logger=None)

    @rabbit.publisher(queue, persist=True)
    @outbox.subscriber(QUEUE, max_workers=SLOTS, fetch_batch_size=FETCH, terminal_flush_batch_size=FLUSH)
    async def relay(body: dict[str, int]) -> dict[str, int]:
        return body

    return FastStream(outbox, on_startup=[rabbit.connect], logger=None)


def worker(queue: RabbitQueue) -> FastStream:
    """Return a worker."""
    rabbit = RabbitBroker(os.environ["BENCH_AMQP_URL"], default_channel=Channel(prefetch_count=PREFETCH), logger=None)

    @rabbit.subscriber(queue)
    async def noop(body: dict[str, int]) -> None:
        stamp(body["number"])

    return FastStream(rabbit, logger=None)


async def main(part: str) -> None:
    """Run until SIGTERM."""
    await application(part).run()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(main(sys.argv[1]))
