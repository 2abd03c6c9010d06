-- Purpose: count, per tenant of a governed queue that the caller holds, the hints that are out and the jobs that run, with each tenant's own limits.
--   A lease counts until it has expired and nobody can revive it any more: a
--   heartbeat in a governed queue refuses to, and one that began in time holds the row. The row without a tenant
--   tells the time, and what is left of a rate to those tenants of which nothing is written down (kept under the name '').
-- Transition: none
-- Parameters: queue
-- Locks: rows whose lease has expired, NO KEY UPDATE, SKIP LOCKED: job.transaction() doesn't keep them. Index: outbox_leases and outbox_released, primary key for expired
--   ones; tenant_limits_pkey.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), live AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.phase, o.lease_expires_at <= n.instant AS expired
  FROM {schema}.outbox AS o, now AS n WHERE o.phase = 'leased' AND o.queue = CAST(:queue AS text)
  UNION ALL
  SELECT o.job_id, o.tenant, o.phase, false FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue = CAST(:queue AS text)
), free AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT l.job_id FROM live AS l WHERE l.expired)) AND coalesce(o.phase = 'leased', false)
    AND o.lease_expires_at <= (SELECT n.instant FROM now AS n)
  ORDER BY o.job_id FOR NO KEY UPDATE SKIP LOCKED
), counted AS MATERIALIZED (
  SELECT l.tenant, count(*) FILTER (WHERE l.phase = 'released') AS released, count(*) FILTER (WHERE l.phase = 'leased') AS running
  FROM live AS l WHERE l.job_id <> ALL (ARRAY(SELECT f.job_id FROM free AS f)) GROUP BY l.tenant
)
SELECT n.instant AS now, NULL AS tenant, 0 AS released, 0 AS running, NULL::integer AS max_running, NULL::float8 AS rate_per_s, NULL::integer AS burst,
  u.tokens, u.tokens_at
FROM now AS n LEFT JOIN {schema}.tenant_limits AS u ON u.queue = CAST(:queue AS text) AND u.name = ''
UNION ALL
SELECT n.instant, c.tenant, c.released, c.running, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at
FROM now AS n CROSS JOIN counted AS c
LEFT JOIN LATERAL (
  SELECT s.max_running, s.rate_per_s, s.burst, s.tokens, s.tokens_at FROM {schema}.tenant_limits AS s
  WHERE s.queue = CAST(:queue AS text) AND s.name = c.tenant ORDER BY s.name LIMIT 1  -- keeps the planner to one index probe for each
) AS t ON true
