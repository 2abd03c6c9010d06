"""PgQueuer: asyncpg on uvloop, batches of 1,000, a pool so that claiming and logging overlap, durable tables.

The worker is `PgQueuer.run` with the settings below, as `pgq run` starts it; completed jobs leave `pgqueuer`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import asyncpg
import uvloop
from measure.contender import NO_EXTRA, chunks
from measure.stamps import stamp
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from peers._shared import AsyncWriter, InDatabase

BATCH = 1000
CONNECTIONS = 8
BUSINESS_ONE = "INSERT INTO business (id, note) VALUES ($1, $2)"
BUSINESS_MANY = "INSERT INTO business (id, note) SELECT id, 'note ' || id FROM unnest($1::bigint[]) AS id"


async def enqueue(numbers: Sequence[int], queries: Queries) -> None:
    """Insert a job for each number in one statement."""
    count = len(numbers)
    await queries.enqueue(["noop"] * count, [b"%d" % number for number in numbers], [0] * count)


class Submitter(AsyncWriter):
    """`Queries.enqueue` on the connection that holds the caller's transaction."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def open(self) -> None:
        """Connect."""
        self.connection = self.run(asyncpg.connect(self.url))
        self.queries = Queries(AsyncpgDriver(self.connection))

    def close(self) -> None:
        """Disconnect."""
        self.run(self.connection.close())
        self.loop.close()

    async def submit(self, number: int) -> None:
        """Commit business row and job."""
        async with self.connection.transaction():
            await self.connection.execute(BUSINESS_ONE, number, f"note {number}")
            await self.queries.enqueue("noop", b"%d" % number)

    async def submit_many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs."""
        async with self.connection.transaction():
            await self.connection.execute(BUSINESS_MANY, list(numbers))
            await enqueue(numbers, self.queries)


class Contender(InDatabase):
    """PgQueuer, in its own tables of the same database."""

    name = "pgqueuer"
    packages = ("pgqueuer", "asyncpg", "uvloop")
    settings = f"asyncpg pool of {CONNECTIONS}, uvloop, batch_size={BATCH}, durable tables"
    can = frozenset({"drain", "enqueue_one", "enqueue_many", "latency", "horizon"})

    def prepare(self) -> None:
        """Install its schema."""
        self._run(lambda queries: queries.install())

    def reset(self) -> None:
        """Forget all jobs."""
        self.looking.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics")

    def fill(self, start: int, count: int) -> None:
        """Enqueue a backlog."""
        for numbers in chunks(start, count):
            self._run(partial(enqueue, numbers))

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers."""
        return [self.python("-m", "peers.peer_pgqueuer", extra=extra) for _ in range(workers)]

    def left(self) -> int:
        """Count what is still in the queue table; a completed job leaves it."""
        return self.count("SELECT count(*) FROM pgqueuer")

    def submitter(self) -> Submitter:
        """Return a writer on asyncpg."""
        return Submitter(self.servers.database_url)

    def _run(self, act: Callable[[Queries], Awaitable[None]]) -> None:
        async def connected() -> None:
            connection = await asyncpg.connect(self.servers.database_url)
            try:
                await act(Queries(AsyncpgDriver(connection)))
            finally:
                await connection.close()

        asyncio.run(connected())


CONTENDER = Contender


async def work() -> None:
    """Run a worker until SIGTERM."""
    url = os.environ["BENCH_DATABASE_URL"]
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        pgq = PgQueuer.from_asyncpg_pool(pool)

        @pgq.entrypoint("noop")
        async def noop(job: Job) -> None:
            stamp(int(job.payload or b"0"))

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pgq.shutdown.set)
        await pgq.run(batch_size=BATCH)


if __name__ == "__main__":
    uvloop.run(work())
