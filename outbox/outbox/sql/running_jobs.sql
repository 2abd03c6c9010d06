-- Purpose: read the jobs that run, of one queue or of all, those first that were started first, without payloads.
-- Transition: none
-- Parameters: queue (NULL: all), look (leases of one queue, and of all, looked at), batch
-- Locks: none. Index: outbox_leases, one probe per distinct queue and then no further than the limit; jobs_pkey. A lease's place there moves while it is
--   extended, so that the longest is found among those that are looked at.
WITH RECURSIVE leasing(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND (CAST(:queue AS text) IS NULL OR o.queue = CAST(:queue AS text)) ORDER BY o.queue DESC, o.due_at DESC LIMIT 1)
  UNION ALL
  SELECT m.queue FROM leasing AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue < k.queue AND CAST(:queue AS text) IS NULL ORDER BY o.queue DESC, o.due_at DESC LIMIT 1
  ) AS m
), leased AS MATERIALIZED (
  SELECT l.job_id, l.progress, l.lease_expires_at FROM leasing AS k CROSS JOIN LATERAL (
    SELECT o.job_id, o.progress, o.lease_expires_at FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue = k.queue ORDER BY o.due_at LIMIT CAST(:look AS integer)
  ) AS l LIMIT CAST(:look AS integer)
)
SELECT j.id, j.queue, j.kind, j.tenant, j.logical_key, j.attempt_count AS attempt, j.lease_owner AS worker, j.lease_started_at AS started_at,
  CASE WHEN isfinite(j.lease_started_at) THEN CAST(extract(epoch FROM n.now - j.lease_started_at) AS float8) END AS for_s, CAST(extract(epoch FROM l.lease_expires_at - n.now) AS float8) AS lease_s,
  l.progress
FROM leased AS l JOIN {schema}.jobs AS j ON j.id = l.job_id AND j.state = 'running', (SELECT {schema}.clock() AS now) AS n
ORDER BY j.lease_started_at, j.id LIMIT CAST(:batch AS integer)
