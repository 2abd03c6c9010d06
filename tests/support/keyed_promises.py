"""What concurrency keys promise, asked of the database: each query names what breaks it."""

from __future__ import annotations

# What was let out in vain, of these: beside more than it allows, or before one of its key that came earlier.
CROWDED_OUT = """
SELECT o.limit_key, max(o.limit_max)
FROM {s}.outbox AS o WHERE o.job_id = ANY (%s) AND o.phase = 'released' AND o.limit_key IS NOT NULL
GROUP BY o.tenant, o.limit_group, o.limit_key
HAVING max(o.limit_max) < (
  SELECT count(*) FROM {s}.outbox AS b
  WHERE (b.tenant, b.limit_group, b.limit_key) = (o.tenant, o.limit_group, o.limit_key)
    AND (b.phase = 'released' OR (b.phase = 'leased' AND b.lease_expires_at > {s}.clock())))
"""
OVERTAKEN = """
SELECT o.job_id, b.job_id FROM {s}.outbox AS o JOIN {s}.outbox AS b
  ON (b.tenant, b.limit_group, b.limit_key) = (o.tenant, o.limit_group, o.limit_key)
  AND (b.limit_place, b.job_id) < (o.limit_place, o.job_id)
WHERE o.job_id = ANY (%s) AND o.phase = 'released'
UNION ALL
SELECT o.job_id, b.job_id FROM {s}.outbox AS o JOIN {s}.dead_letters AS b
  ON (b.tenant, b.limit_group, b.limit_key) = (o.tenant, o.limit_group, o.limit_key) AND b.discarded_at IS NULL
  AND (b.limit_place, b.job_id) < (o.limit_place, o.job_id)
WHERE o.job_id = ANY (%s) AND o.phase = 'released'
"""
LEASES = """
SELECT limit_key, count(*), max(limit_max) FROM {s}.outbox
WHERE phase = 'leased' AND lease_expires_at > {s}.clock() AND limit_key IS NOT NULL
GROUP BY tenant, limit_group, limit_key HAVING count(*) > max(limit_max)
"""
UNLIKE = """
SELECT j.id FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id
WHERE (j.limit_group, j.limit_key, j.limit_max, j.limit_place)
  IS DISTINCT FROM (o.limit_group, o.limit_key, o.limit_max, o.limit_place)
"""
LATE = """
SELECT j.id FROM {s}.jobs AS j WHERE j.state = 'ready' AND j.deadline_at <= {s}.clock()
"""
