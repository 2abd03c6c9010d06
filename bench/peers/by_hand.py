"""The limit: psycopg and one statement that inserts the business row, the job and what is owed to it.

No library, no validation, no key check beyond the table's own constraints; ids are made by the writer.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping, Sequence

import psycopg
from measure.contender import NO_EXTRA

from peers._shared import InDatabase, Writer

TABLES = """
CREATE TABLE jobs (
  id uuid PRIMARY KEY, kind text NOT NULL, logical_key text NOT NULL, queue text NOT NULL, payload jsonb NOT NULL,
  state text NOT NULL DEFAULT 'ready', created_at timestamptz NOT NULL DEFAULT now(), UNIQUE (kind, logical_key));
CREATE TABLE outbox (
  job_id uuid PRIMARY KEY, phase text NOT NULL DEFAULT 'owed', queue text NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX outbox_owed ON outbox (queue, due_at) WHERE phase = 'owed';
"""
ONE = """
WITH business AS (INSERT INTO business (id, note) VALUES (%(number)s, %(note)s)),
  job AS (INSERT INTO jobs (id, kind, logical_key, queue, payload)
    VALUES (%(id)s, 'noop', %(key)s, 'bench', %(payload)s::jsonb))
INSERT INTO outbox (job_id, queue) VALUES (%(id)s, 'bench')
"""
MANY = """
WITH input AS MATERIALIZED (
    SELECT number, id, payload
    FROM unnest(%(numbers)s::bigint[], %(ids)s::uuid[], %(payloads)s::text[]) AS given (number, id, payload)),
  business AS (INSERT INTO business (id, note) SELECT number, 'note ' || number FROM input),
  job AS (INSERT INTO jobs (id, kind, logical_key, queue, payload)
    SELECT id, 'noop', number::text, 'bench', payload::jsonb FROM input)
INSERT INTO outbox (job_id, queue) SELECT id, 'bench' FROM input
"""


class Submitter(Writer):
    """One autocommitted statement a call."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        """Connect."""
        self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=0)

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()

    def one(self, number: int) -> None:
        """Commit business row and job."""
        values = {"number": number, "note": f"note {number}", "id": uuid.uuid4(), "key": str(number)}
        self.connection.execute(ONE, values | {"payload": f'{{"number": {number}}}'})

    def many(self, numbers: Sequence[int]) -> None:
        """Commit business rows and jobs."""
        payloads = [f'{{"number": {number}}}' for number in numbers]
        ids = [uuid.uuid4() for _ in numbers]
        self.connection.execute(MANY, {"numbers": list(numbers), "ids": ids, "payloads": payloads})


class Contender(InDatabase):
    """Tables like ours and nothing around them."""

    name = "by-hand"
    packages = ("psycopg",)
    settings = "one prepared statement, autocommit"
    can = frozenset({"enqueue_one", "enqueue_many"})

    def prepare(self) -> None:
        """Make the tables."""
        self.looking.execute(TABLES)

    def reset(self) -> None:
        """Forget all jobs."""
        self.looking.execute("TRUNCATE jobs, outbox")

    def fill(self, start: int, count: int) -> None:
        """Refuse: nobody would run them."""
        raise NotImplementedError("there is no worker")

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start nothing."""
        return []

    def left(self) -> int:
        """Count what is owed."""
        return self.count("SELECT count(*) FROM outbox")

    def submitter(self) -> Submitter:
        """Return a writer on psycopg."""
        return Submitter(self.servers.database_url)


CONTENDER = Contender
