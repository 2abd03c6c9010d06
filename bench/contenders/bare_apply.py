"""The transaction of a completion with `apply`, on eight bare psycopg threads: fence and end the job, write a row.

Two statements and a commit a job, prepared by psycopg itself; nothing around them.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any
from uuid import UUID

import psycopg
from measure.arena import Seat
from measure.evidence import Wrong

# What claims would have left behind, in two statements.
_LEASE = """
UPDATE outbox.outbox SET phase = 'leased', released_at = now(), lease_token = gen_random_uuid(),
  lease_expires_at = now() + interval '1 hour';
UPDATE outbox.jobs AS j SET state = 'running', attempt_count = 1, max_attempts = 5, lease_token = o.lease_token,
  lease_owner = 'bench', lease_host = 'bench', lease_worker_version = '1', lease_handler_version = '1',
  lease_started_at = now()
FROM outbox.outbox AS o WHERE o.job_id = j.id;
"""
_END = """
WITH fenced AS (
  DELETE FROM outbox.outbox WHERE job_id = %(id)s AND phase = 'leased' AND lease_token = %(token)s
  RETURNING job_id, lease_token, released_at
), finished AS (
  UPDATE outbox.jobs AS j SET state = 'succeeded', lease_token = NULL, finished_at = clock_timestamp() FROM fenced AS f
  WHERE j.id = f.job_id AND j.state = 'running' AND j.lease_token = f.lease_token
  RETURNING j.*, f.lease_token AS token, f.released_at
)
INSERT INTO outbox.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at,
  claimed_at, ended_at, outcome)
SELECT id, attempt_count, token, lease_owner, lease_host, lease_worker_version, lease_handler_version, released_at,
  lease_started_at, finished_at, 'succeeded' FROM finished
RETURNING job_id
"""
_ROW = "INSERT INTO business (id, note) VALUES (%s, 'written by apply')"
Leased = tuple[UUID, UUID, int]


def bare_apply(seat: Seat, *, jobs: int, threads: int = 8) -> float:
    """Return transactions per second: each ends one leased job and inserts one row."""
    seat.fresh()
    seat.contender.fill(0, jobs)
    seat.looking.execute(_LEASE.encode())
    line: queue.SimpleQueue[Leased] = queue.SimpleQueue()
    for row in seat.looking.execute("SELECT id, lease_token, CAST(logical_key AS bigint) FROM outbox.jobs ORDER BY id"):
        line.put(row)  # type: ignore[arg-type]
    seat.settle()
    gate = threading.Barrier(threads + 1)
    crew = [threading.Thread(target=_work, args=(seat.servers.database_url, line, gate)) for _ in range(threads)]
    for thread in crew:
        thread.start()
    gate.wait()
    start = time.monotonic()
    for thread in crew:
        thread.join()
    took = time.monotonic() - start
    rows, left = seat.number("SELECT count(*) FROM business"), seat.contender.left()
    if rows != jobs or left:
        raise Wrong(f"{rows} of {jobs} rows were written, {left} jobs are left")
    return jobs / took


def _work(url: str, line: queue.SimpleQueue[Leased], gate: threading.Barrier) -> None:
    with psycopg.connect(url) as connection:
        gate.wait()
        while True:
            try:
                leased = line.get_nowait()
            except queue.Empty:
                return
            _complete(connection, *leased)


def _complete(connection: psycopg.Connection[Any], job_id: UUID, token: UUID, number: int) -> None:
    ended = connection.execute(_END, {"id": job_id, "token": token})
    assert ended.rowcount == 1
    connection.execute(_ROW, (number,))
    connection.commit()
