-- Purpose: read what the limits of its queue leave to one job that is due: the rules, what is left of the rates, and what counts against them.
-- Transition: none
-- Parameters: queue, tenant (the job's)
-- Locks: none. Index: queue_limits_pkey, tenant_limits_pkey, outbox_leases, outbox_released. No row: the queue is not governed.
SELECT q.max_running, q.rate_per_s, q.burst, q.tokens, q.tokens_at, coalesce(t.max_running, q.tenant_max_running) AS tenant_max_running,
  coalesce(t.rate_per_s, q.tenant_rate_per_s) AS tenant_rate_per_s, CASE WHEN t.rate_per_s IS NULL THEN q.tenant_burst ELSE t.burst END AS tenant_burst,
  CASE WHEN t.rate_per_s IS NULL AND t.tokens IS NULL THEN e.tokens ELSE t.tokens END AS tenant_tokens,
  CASE WHEN t.rate_per_s IS NULL AND t.tokens IS NULL THEN e.tokens_at ELSE t.tokens_at END AS tenant_tokens_at, u.used, u.tenant_used,
  u.released, u.tenant_released
FROM {schema}.queue_limits AS q
LEFT JOIN {schema}.tenant_limits AS t ON t.queue = q.name AND t.name = CAST(:tenant AS text)
LEFT JOIN {schema}.tenant_limits AS e ON e.queue = q.name AND e.name = ''
CROSS JOIN LATERAL (
  SELECT count(*) AS used, count(*) FILTER (WHERE o.tenant = CAST(:tenant AS text)) AS tenant_used,
    count(*) FILTER (WHERE o.is_out) AS released, count(*) FILTER (WHERE o.is_out AND o.tenant = CAST(:tenant AS text)) AS tenant_released
  FROM (
    SELECT l.tenant, false AS is_out FROM {schema}.outbox AS l WHERE l.phase = 'leased' AND l.queue = q.name AND l.lease_expires_at > {schema}.clock()
    UNION ALL SELECT h.tenant, true FROM {schema}.outbox AS h WHERE h.phase = 'released' AND h.queue = q.name
  ) AS o
) AS u
WHERE q.name = CAST(:queue AS text) AND q.governed
