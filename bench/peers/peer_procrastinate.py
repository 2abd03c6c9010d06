"""Procrastinate: the psycopg 3 connector, asynchronous tasks at high concurrency, LISTEN/NOTIFY on, uvloop.

It claims and finishes jobs one by one, so a pool with a connection for each few slots is what helps.
Jobs are deferred on the caller's own connection (`configure(connection=...)`), many with `batch_defer`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

import procrastinate
import psycopg
import uvloop
from measure.contender import NO_EXTRA, chunks
from measure.stamps import stamp
from procrastinate.types import JSONDict

from peers._shared import BUSINESS_MANY, BUSINESS_ONE, InDatabase, Writer

CONCURRENCY = 50
CONNECTIONS = 10
TASK = "noop"


class Submitter(Writer):
    """`defer` and `batch_defer` on the connection that holds the caller's transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1))

    def open(self) -> None:
        """Connect."""
        self.app.open()
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.task = self.app.configure_task(TASK, connection=self.connection, allow_unknown=True)

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
        self.app.close()

    def one(self, number: int) -> None:
        """Commit business row and job."""
        with self.connection.transaction():
            self.connection.execute(BUSINESS_ONE, (number, f"note {number}"))
            self.task.defer(number=number)

    def many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs."""
        with self.connection.transaction():
            self.connection.execute(BUSINESS_MANY, (list(numbers),))
            self.jobs(numbers)

    def jobs(self, numbers: Sequence[int]) -> None:
        """Insert the jobs alone."""
        arguments: list[JSONDict] = [{"number": number} for number in numbers]
        self.task.batch_defer(*arguments)


class Contender(InDatabase):
    """Procrastinate, in its own tables of the same database."""

    name = "procrastinate"
    packages = ("procrastinate", "psycopg", "uvloop")
    settings = f"psycopg pool of {CONNECTIONS}, async tasks, concurrency={CONCURRENCY}, listen_notify, uvloop"
    can = frozenset({"drain", "enqueue_one", "enqueue_many", "latency", "horizon"})

    def prepare(self) -> None:
        """Install its schema."""
        app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=self.servers.database_url))
        with app.open():
            app.schema_manager.apply_schema()

    def reset(self) -> None:
        """Forget all jobs."""
        self.looking.execute("TRUNCATE procrastinate_jobs CASCADE")

    def fill(self, start: int, count: int) -> None:
        """Defer a backlog."""
        with Submitter(self.servers.database_url) as submitter:
            for numbers in chunks(start, count, 5000):
                submitter.jobs(numbers)

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers."""
        return [self.python("-m", "peers.peer_procrastinate", extra=extra) for _ in range(workers)]

    def left(self) -> int:
        """Count the jobs that have not ended; both states are indexed."""
        return self.count("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")

    def submitter(self) -> Submitter:
        """Return a writer on psycopg."""
        return Submitter(self.servers.database_url)


CONTENDER = Contender


async def work() -> None:
    """Run a worker until SIGTERM, which it handles itself."""
    connector = procrastinate.PsycopgConnector(
        conninfo=os.environ["BENCH_DATABASE_URL"], min_size=CONNECTIONS, max_size=CONNECTIONS
    )
    app = procrastinate.App(connector=connector)

    @app.task(name=TASK)
    async def noop(number: int) -> None:
        stamp(number)

    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, listen_notify=True)


if __name__ == "__main__":
    uvloop.run(work())
