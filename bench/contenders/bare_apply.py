"""The transaction of a completion with `apply`, on eight bare threads: fence and end the job, write a row.

Two statements and a commit a job; nothing around them. On psycopg alone, which prepares both by itself, and on a
SQLAlchemy Session, which is what a handler's `apply` is given: between the two lies what the Session costs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
import sqlalchemy as sa
from measure.arena import Seat
from measure.evidence import Wrong
from sqlalchemy.orm import Session

from contenders.workload import INSERT

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
Complete = Callable[[UUID, UUID, int], None]


def bare_apply(seat: Seat, *, jobs: int, threads: int = 8, session: bool = False) -> float:
    """Return transactions per second: each ends one leased job and inserts one row, through a Session if wanted."""
    seat.fresh()
    seat.contender.fill(0, jobs)
    seat.looking.execute(_LEASE.encode())
    line: queue.SimpleQueue[Leased] = queue.SimpleQueue()
    for row in seat.looking.execute("SELECT id, lease_token, CAST(logical_key AS bigint) FROM outbox.jobs ORDER BY id"):
        line.put(row)  # type: ignore[arg-type]
    seat.settle()
    gate = threading.Barrier(threads + 1)
    work = (seat.servers.database_url, line, gate, session)
    crew = [threading.Thread(target=_work, args=work) for _ in range(threads)]
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


def _work(url: str, line: queue.SimpleQueue[Leased], gate: threading.Barrier, session: bool) -> None:
    with _through_session(url) if session else _through_psycopg(url) as complete:
        gate.wait()
        while True:
            try:
                leased = line.get_nowait()
            except queue.Empty:
                return
            complete(*leased)


@contextmanager
def _through_psycopg(url: str) -> Iterator[Complete]:
    def complete(job_id: UUID, token: UUID, number: int) -> None:
        assert connection.execute(_END, {"id": job_id, "token": token}).rowcount == 1
        connection.execute(_ROW, (number,))
        connection.commit()

    with psycopg.connect(url) as connection:
        yield complete


@contextmanager
def _through_session(url: str) -> Iterator[Complete]:
    def complete(job_id: UUID, token: UUID, number: int) -> None:
        with Session(engine) as session, session.begin():
            ended = session.connection().exec_driver_sql(_END, {"id": job_id, "token": token})
            assert ended.rowcount == 1
            session.execute(INSERT, {"id": number})

    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.connect():
        pass  # the pool keeps it
    try:
        yield complete
    finally:
        engine.dispose()
