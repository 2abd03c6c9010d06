"""One tenant's large backlog, made by SQL as `enqueue_many` makes it."""

from __future__ import annotations

from support.database import Database

__all__ = ["HEAVY", "fill"]

HEAVY = "heavy"
CHUNK = 50_000

_ADD = """
WITH made AS (
  INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, run_at, created_at)
  SELECT CAST(lpad(to_hex(CAST(extract(epoch FROM t.now) * 1000 AS bigint)), 12, '0') || '7' || substr(m.digest, 1, 3)
      || '8' || substr(m.digest, 4, 15) AS uuid),
    CAST(%s AS text), 'fair.shared', 'heavy-' || m.digest, 1, 'shared', jsonb_build_object('number', n),
    decode(m.digest, 'hex'), t.now, t.now
  FROM generate_series(1, %s) AS n,
    LATERAL (SELECT {s}.clock() AS now) AS t, LATERAL (SELECT md5(random()::text || n) AS digest) AS m
  RETURNING id, queue, tenant, run_at
)
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT id, queue, tenant, run_at, run_at FROM made
"""


def fill(database: Database, jobs: int) -> int:
    """Write so many waiting jobs, and return how many there are. Neither the statistics nor the pages that were made
    by this alone are left to what is measured.
    """
    for first in range(0, jobs, CHUNK):
        database.rows(_ADD, HEAVY, min(jobs - first, CHUNK))
    database.rows("VACUUM (ANALYZE) {s}.jobs")
    database.rows("VACUUM (ANALYZE) {s}.outbox")
    database.rows("CHECKPOINT")
    return database.count("outbox WHERE tenant = %s", HEAVY)
