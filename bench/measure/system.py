"""One installation to measure: an own database, the command's own processes, and ways to look at them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from outbox.migrations import upgrade_database
from outbox.servers import postgres, rabbitmq
from outbox.urls import database_conninfo, sqlalchemy_engine

BENCH = Path(__file__).resolve().parents[1]


@dataclass
class System:
    """The servers' addresses, and the processes that were started against them."""

    database_url: str
    amqp_url: str
    prefix: str
    logs: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def engine(self) -> sa.Engine:
        """Return an engine for a writing service."""
        return sqlalchemy_engine(self.database_url, pool_size=20)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a plain autocommit connection for looking."""
        keywords: dict[str, Any] = dict(database_conninfo(self.database_url))
        return psycopg.connect(**keywords, autocommit=True)

    def start(self, *arguments: str, extra: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start `outbox ARGUMENTS` and return the process."""
        env = {
            **os.environ,
            "OUTBOX_DATABASE_URL": self.database_url,
            "OUTBOX_AMQP_URL": self.amqp_url,
            "OUTBOX_AMQP_PREFIX": self.prefix,
            "PYTHONPATH": str(BENCH),
            **(extra or {}),
        }
        log = (self.logs / f"{len(self.processes)}-{arguments[0]}.log").open("wb")
        command = [sys.executable, "-m", "outbox", *arguments]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End one process as an operator would."""
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def left(self, connection: psycopg.Connection[tuple[object, ...]]) -> int:
        """Return how many jobs have not ended."""
        row = connection.execute("SELECT count(*) FROM outbox.outbox").fetchone()
        return int(str(row[0])) if row else 0

    def reset(self) -> None:
        """Forget all jobs."""
        with self.connect() as connection:
            connection.execute("TRUNCATE outbox.jobs, outbox.outbox, outbox.attempts")
            connection.execute("DROP TABLE IF EXISTS business")
            connection.execute("CREATE TABLE business (id bigint PRIMARY KEY, note text NOT NULL)")


@contextmanager
def system(log: Callable[[str], None]) -> Iterator[System]:
    """Find or start servers, make a database on them, and clean up behind."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(log=log))
        broker = stack.enter_context(rabbitmq(log=log))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-bench-")))
        name = f"outbox_bench_{secrets.token_hex(4)}"
        url = server.create_database(name)
        stack.callback(server.drop_database, name)
        upgrade_database(url, "outbox")
        made = System(url, broker.url, f"bench{secrets.token_hex(3)}", folder)
        try:
            yield made
        finally:
            for process in made.processes:
                if process.poll() is None:
                    made.stop(process)


def wait_until(done: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> None:
    """Wait for a condition; `TimeoutError` if it doesn't come."""
    end = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not done after {timeout_s:g} s")
        time.sleep(every_s)
