"""A history of ended jobs, made by SQL: ids, pages and indexes as real ones, a few of each rare thing."""

from __future__ import annotations

import psycopg

CHUNK = 50_000

# One in a hundred has failed, one in fifty is cancelled; kinds and tenants of every frequency, the rare ones long ago.
_JOBS = """
INSERT INTO outbox.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, run_at,
  max_attempts, attempt_count, lease_owner, lease_host, lease_worker_version, lease_handler_version,
  lease_started_at, created_at, finished_at, first_error_class, first_error_code, first_error_message,
  last_error_class, last_error_code, last_error_message, cancel_requested_at, cancel_requested_by, cancel_reason)
SELECT CAST(lpad(to_hex(1700000000000 + n * 10), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
    || substr(md5(n::text), 4, 15) AS uuid),
  CASE WHEN n < 300 THEN 'rare' WHEN n %% 3 = 0 THEN 'b' ELSE 'a' END,
  CASE WHEN n BETWEEN 300 AND 400 THEN 'scale.rare' WHEN n %% 5 = 0 THEN 'scale.mail' ELSE 'scale.charge' END,
  'key-' || n, 1, CASE WHEN n BETWEEN 500 AND 600 THEN 'rare' WHEN n %% 5 = 0 THEN 'mail' ELSE 'charges' END,
  jsonb_build_object('number', n, 'text', repeat('x', 100)), decode(md5(n::text), 'hex'), s.state, t.at, 5, 1,
  'host/1/0', 'host', '1', '1', t.at, t.at, t.at, s.code, s.code, s.code, s.code, s.code, s.code,
  CASE s.state WHEN 'cancelled' THEN t.at END, CASE s.state WHEN 'cancelled' THEN 'ops' END,
  CASE s.state WHEN 'cancelled' THEN 'r' END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n,
  LATERAL (SELECT to_timestamp((1700000000000 + n * 10) / 1000.0) AS at) AS t,
  LATERAL (SELECT CASE WHEN n %% 100 = 0 THEN 'failed' WHEN n %% 50 = 1 THEN 'cancelled' ELSE 'succeeded' END AS state,
    CASE WHEN n %% 100 = 0 THEN 'code_' || n %% 700 END AS code) AS s
"""
_ATTEMPTS = """
INSERT INTO outbox.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at,
  claimed_at, ended_at, outcome)
SELECT j.id, 1, gen_random_uuid(), 'host/1/0', 'host', '1', '1', j.finished_at, j.finished_at, j.finished_at, j.state
FROM outbox.jobs AS j
"""
_LETTERS = """
INSERT INTO outbox.dead_letters (job_id, kind, queue, tenant, code, failed_at)
SELECT j.id, j.kind, j.queue, j.tenant, j.last_error_code, j.finished_at FROM outbox.jobs AS j WHERE j.state = 'failed'
ON CONFLICT DO NOTHING
"""
_AUDIT = """
INSERT INTO outbox.audit (at, actor, action, subject, reason)
SELECT j.finished_at, 'ops', 'job.cancel', j.id::text, 'r' FROM outbox.jobs AS j WHERE j.state = 'cancelled'
"""


def fill(url: str, jobs: int) -> None:
    """Write so many ended jobs with their attempts, letters and audit into an empty installation."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(0, jobs, CHUNK):
            connection.execute(_JOBS.encode(), {"first": first, "last": min(first + CHUNK, jobs) - 1})
        for statement in (_ATTEMPTS, _LETTERS, _AUDIT):
            connection.execute(statement.encode())
        connection.execute("VACUUM (ANALYZE) outbox.jobs, outbox.attempts, outbox.dead_letters, outbox.audit")
