"""A large backlog, and a large history: neither may slow a drain down. Also what the processes hold in memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

from measure.arena import Arena, Seat
from measure.cpu import resident_mib
from measure.drain import drain, until_completed
from measure.evidence import nothing_left, started_once
from measure.stamps import count_stamps
from measure.waiting import wait_until

_CHUNK = 250_000
# Jobs that ended long ago, with one attempt each; ids as time-ordered as real ones.
_FINISHED = """
WITH made AS (
  INSERT INTO outbox.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, run_at,
    max_attempts, attempt_count, lease_owner, lease_host, lease_worker_version, lease_handler_version,
    lease_started_at, created_at, finished_at)
  SELECT CAST(lpad(to_hex(1600000000000 + n), 12, '0') || '7' || substr(md5(CAST(n AS text)), 1, 3) || '8'
      || substr(md5(CAST(n AS text)), 4, 15) AS uuid),
    'default', 'bench.async_noop', 'old-' || n, 1, 'bench', jsonb_build_object('number', n),
    decode(md5(CAST(n AS text)) || md5(CAST(n AS text)), 'hex'), 'succeeded', t.at, 5, 1, 'host/1/0', 'host', '1', '1',
    t.at, t.at, t.at
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n,
    LATERAL (SELECT to_timestamp((1600000000000 + n) / 1000.0) AS at) AS t
  RETURNING id, finished_at
)
INSERT INTO outbox.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at,
  claimed_at, ended_at, outcome)
SELECT id, 1, gen_random_uuid(), 'host/1/0', 'host', '1', '1', finished_at, finished_at, finished_at, 'succeeded'
FROM made
"""
_FILLFACTOR = """
SELECT coalesce((SELECT option_value FROM pg_class, pg_options_to_table(reloptions)
  WHERE oid = CAST('outbox.jobs' AS regclass) AND option_name = 'fillfactor'), '100')
"""


@dataclass(frozen=True)
class Backlog:
    """Jobs per second, and how much more memory the processes held at the end than after the first 10,000 jobs."""

    rate: float
    relay_growth: float
    consumer_growth: float
    relay_mib: float
    consumer_mib: float


def backlog(seat: Seat, *, jobs: int, early: int = 10_000, timeout_s: float = 400) -> Backlog:
    """Drain a large backlog with one consumer and watch the memory of relay and consumer.

    Raises `Wrong` if a job was lost or ran twice.
    """
    seat.fresh()
    seat.contender.fill(0, jobs)
    seat.settle()
    try:
        relay, consumer = seat.contender.start(1)
        wait_until(lambda: count_stamps(seat.stamps) >= early, 60)
        before = resident_mib(relay.pid), resident_mib(consumer.pid)
        end = until_completed(seat, jobs, timeout_s)
        after = resident_mib(relay.pid), resident_mib(consumer.pid)
    finally:
        seat.contender.stop()
    nothing_left(seat)
    instants = started_once(seat, range(jobs)).instants
    tenth = min(jobs // 10, 10_000)  # as much as start-up takes, not a tenth of minutes
    rate = (jobs - tenth) / (end - instants[tenth])
    return Backlog(rate, after[0] / before[0], after[1] / before[1], *after)


def make_history(seat: Seat, *, finished: int) -> float:
    """Write so many finished jobs with their attempts by SQL, as densely as pages allow; return the seconds it took."""
    start = time.monotonic()
    seat.contender.reset()
    looking = seat.looking
    looking.execute("SET synchronous_commit = off")
    usual = seat.number(_FILLFACTOR)
    looking.execute("ALTER TABLE outbox.jobs SET (fillfactor = 100)")
    for first in range(0, finished, _CHUNK):
        last = min(first + _CHUNK, finished) - 1
        looking.execute(_FINISHED.encode(), {"first": first, "last": last})
    looking.execute(f"ALTER TABLE outbox.jobs SET (fillfactor = {usual})".encode())
    looking.execute("RESET synchronous_commit")
    looking.execute("VACUUM (ANALYZE) outbox.jobs, outbox.attempts")
    return time.monotonic() - start


def drain_on_history(seat: Seat, *, jobs: int, first: int, arena: Arena) -> float:
    """Drain a usual backlog on top of what is there."""
    return drain(seat, workers=1, jobs=jobs, first=first, keep=True, arena=arena).rate
