"""Awa: Rust core, Python handlers, fenced completion; 1,024 slots for one hot queue, claims of 512, as its docs say.

Its guide asks to size `max_workers` for the latency of durable completion where handlers do next to nothing, and to
measure AWA_COMPLETION_SHARDS: one flusher did better on two cores than the four that so many slots bring. A deadline
of zero lets a claim be one compact row a batch; crashes are still found by heartbeat. Jobs go in on the caller's
connection with `awa.bridge`, one call a job: COPY has a transaction of its own, so it fills backlogs only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import awa
import psycopg
from awa.bridge import insert_job_sync
from measure.contender import NO_EXTRA, chunks
from measure.stamps import stamp

from peers._shared import BUSINESS_MANY, BUSINESS_ONE, InDatabase, Writer

QUEUE = "bench"
SLOTS = 1024
CLAIM = 512
CONNECTIONS = 20

# Its own count reads every ready row; this one reads what a completion leaves, and what pruning folded up.
LEFT = """SELECT (SELECT coalesce(sum(last_value), 0) FROM pg_sequences
  WHERE schemaname = 'awa' AND sequencename LIKE 'queue_enqueue_seq_%')
  - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
  - (SELECT count(*) FROM awa.done_entries)
  - (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)"""


@dataclass
class Noop:
    """The arguments of a job."""

    number: int


class Submitter(Writer):
    """`awa.bridge.insert_job_sync` on the psycopg connection that holds the caller's transaction."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        """Connect."""
        self.connection = psycopg.connect(self.url, autocommit=True)

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()

    def one(self, number: int) -> None:
        """Commit business row and job."""
        with self.connection.transaction():
            self.connection.execute(BUSINESS_ONE, (number, f"note {number}"))
            insert_job_sync(self.connection, Noop(number), queue=QUEUE)

    def many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs."""
        with self.connection.transaction():
            self.connection.execute(BUSINESS_MANY, (list(numbers),))
            for number in numbers:
                insert_job_sync(self.connection, Noop(number), queue=QUEUE)


class Contender(InDatabase):
    """Awa, in its own schema of the same database."""

    name = "awa"
    packages = ("awa-pg", "psycopg")
    settings = (
        f"queue storage, max_workers={SLOTS}, claim_batch_size={CLAIM}, deadline_duration_ms=0, "
        f"AWA_COMPLETION_SHARDS=1, {CONNECTIONS} connections, async handler"
    )
    can = frozenset({"drain", "enqueue_one", "enqueue_many", "latency", "horizon"})

    def prepare(self) -> None:
        """Install its schema."""
        self.used = False
        self.client = awa.Client(self.servers.database_url)
        self.client.migrate()
        self.looking.execute("SELECT awa.storage_auto_finalize_if_fresh('awa')")  # as its first worker does

    def reset(self) -> None:
        """Forget all jobs: a schema that was used is made anew, since what it remembers is spread over many tables."""
        if not self.used:
            return
        self.client.close()
        self.looking.execute("DROP SCHEMA IF EXISTS awa CASCADE")
        self.prepare()

    def fill(self, start: int, count: int) -> None:
        """Stream a backlog with COPY."""
        self.used = True
        for numbers in chunks(start, count):
            self.client.enqueue_many_copy([Noop(number) for number in numbers], queue=QUEUE)

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start workers."""
        self.used = True
        environment = {"AWA_COMPLETION_SHARDS": "1", **extra}
        return [self.python("-m", "peers.peer_awa", extra=environment) for _ in range(workers)]

    def left(self) -> int:
        """Count the jobs that have not ended: those that got a place in the queue less those with terminal history."""
        return self.count(LEFT)

    def submitter(self) -> Submitter:
        """Return a writer on psycopg."""
        self.used = True
        return Submitter(self.servers.database_url)


CONTENDER = Contender


async def work() -> None:
    """Run a worker until SIGTERM."""
    client = awa.AsyncClient(os.environ["BENCH_DATABASE_URL"], max_connections=CONNECTIONS)

    @client.task(Noop, queue=QUEUE)
    async def noop(job: awa.Job[Noop]) -> None:
        stamp(job.args.number)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await client.start(
        [{"name": QUEUE, "max_workers": SLOTS, "claim_batch_size": CLAIM, "deadline_duration_ms": 0}],
    )
    await ended.wait()
    await client.shutdown()


if __name__ == "__main__":
    asyncio.run(work())
