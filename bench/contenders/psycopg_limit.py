"""The limit of a submission: one psycopg statement that inserts business row, job and outbox row, as often as it goes.

No check, no digest, no key but a number; nothing that a service could use.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import psycopg
from measure.contender import NO_EXTRA, Base, Submitter
from measure.targets import ONE_STATEMENT

_TABLES = """
CREATE TABLE limit_jobs (id bigint PRIMARY KEY, kind text NOT NULL, key text NOT NULL, payload jsonb NOT NULL,
  state text NOT NULL DEFAULT 'ready', run_at timestamptz NOT NULL DEFAULT now(), UNIQUE (kind, key));
CREATE TABLE limit_outbox (job_id bigint PRIMARY KEY, phase text NOT NULL DEFAULT 'owed',
  order_key timestamptz NOT NULL);
CREATE INDEX ON limit_outbox (order_key) WHERE phase = 'owed';
"""
_INSERT = """
WITH business AS (INSERT INTO business (id, note)
  SELECT n, 'a row of the service' FROM unnest(%(numbers)s::bigint[]) AS n
), jobs AS (INSERT INTO limit_jobs (id, kind, key, payload)
  SELECT n, 'bench.noop', n::text, jsonb_build_object('number', n) FROM unnest(%(numbers)s::bigint[]) AS n
)
INSERT INTO limit_outbox (job_id, order_key) SELECT n, now() FROM unnest(%(numbers)s::bigint[]) AS n
"""


class OneStatement(Base):
    """psycopg in autocommit mode, prepared by itself after five executions."""

    name: ClassVar[str] = ONE_STATEMENT
    packages: ClassVar[tuple[str, ...]] = ("psycopg",)
    settings: ClassVar[str] = "autocommit, prepared statement"
    can: ClassVar[frozenset[str]] = frozenset({"enqueue_one", "enqueue_many"})

    def prepare(self) -> None:
        """Make tables that look like a queue's."""
        self._execute(_TABLES)

    def reset(self) -> None:
        """Empty them."""
        self._execute("TRUNCATE limit_jobs, limit_outbox")

    def fill(self, start: int, count: int) -> None:
        """Write a backlog."""
        with self.submitter() as writer:
            writer.many(range(start, start + count))

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start nothing: nobody works here."""
        return []

    def left(self) -> int:
        """Count the rows."""
        with psycopg.connect(self.servers.database_url) as connection:
            row = connection.execute("SELECT count(*) FROM limit_outbox").fetchone()
            return int(row[0]) if row else 0

    def submitter(self) -> Submitter:
        """Return a connection."""
        return _Writer(self.servers.database_url)

    def _execute(self, script: str) -> None:
        with psycopg.connect(self.servers.database_url) as connection:
            connection.execute(script.encode())


class _Writer:
    """One statement, one round trip, one transaction."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def one(self, number: int) -> None:
        """Commit one of each row."""
        self._connection.execute(_INSERT, {"numbers": [number]})

    def many(self, numbers: Sequence[int]) -> None:
        """Commit all rows of all numbers."""
        self._connection.execute(_INSERT, {"numbers": list(numbers)})


CONTENDER = OneStatement
