"""The servers of one run, and a seat for each contender: a database of its own with the service's table in it."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from measure.contender import Contender, Servers
from measure.stamps import clear_stamps
from outbox.servers import Postgres, RabbitMQ, postgres, rabbitmq

Say = Callable[[str], None]


@dataclass
class Seat:
    """A contender that is ready to be measured."""

    contender: Contender
    servers: Servers
    looking: psycopg.Connection[tuple[object, ...]]

    @property
    def name(self) -> str:
        """The contender's name."""
        return self.contender.name

    @property
    def stamps(self) -> Path:
        """Where the handlers' stamps arrive."""
        return self.servers.folder / "stamps"

    def fresh(self) -> None:
        """Forget all jobs, business rows and stamps; nothing may be running."""
        self.contender.reset()
        self.clear()

    def clear(self) -> None:
        """Forget business rows and stamps."""
        clear_stamps(self.stamps)
        self.looking.execute("TRUNCATE business")

    def settle(self) -> None:
        """Leave neither the statistics nor the dirty pages of a backlog's making to the measurement."""
        self.looking.execute("ANALYZE")
        self.looking.execute("CHECKPOINT")

    def number(self, query: str) -> int:
        """Return the one number that a query gives."""
        row = self.looking.execute(query.encode()).fetchone()
        return int(str(row[0])) if row else 0


@dataclass
class Arena:
    """Throw-away servers, on which every contender has its own database and its own queues."""

    postgres: Postgres
    rabbitmq: RabbitMQ
    folder: Path
    say: Say

    @contextmanager
    def seat(self, kind: Callable[[Servers], Contender], name: str) -> Iterator[Seat]:
        """Make a contender with a fresh database; end its processes and drop the database afterwards."""
        short = f"{re.sub('[^a-z]', '', name.lower())[:20]}_{secrets.token_hex(3)}"
        folder = self.folder / short
        folder.mkdir()
        url = self.postgres.create_database(f"bench_{short}")
        try:
            with psycopg.connect(url, autocommit=True) as looking:
                looking.execute("CREATE TABLE business (id bigint PRIMARY KEY, note text NOT NULL)")
                servers = Servers(url, self.rabbitmq.url, f"b{secrets.token_hex(3)}", folder)
                clear_stamps(folder / "stamps")
                contender = kind(servers)
                try:
                    contender.prepare()
                    yield Seat(contender, servers, looking)
                finally:
                    with suppress(Exception):  # what it could not end is ended with its database and the servers
                        contender.stop()
        finally:
            self.postgres.drop_database(f"bench_{short}")


@contextmanager
def arena(say: Say) -> Iterator[Arena]:
    """Start private servers with their own defaults: durable commits, as they come."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(private=True, log=say))
        broker = stack.enter_context(rabbitmq(private=True, log=say))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-bench-")))
        yield Arena(server, broker, folder, say)
