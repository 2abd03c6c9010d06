-- Purpose: list the limits of queues, and of the tenants that have limits or a weight of their own: a queue's row, then those of its tenants.
-- Transition: none
-- Parameters: batch (the most tenants)
-- Locks: none. Index: none: the tables hold a row for each that somebody has set, tenants besides one for each whose tokens were used just now.
SELECT q.name AS queue, NULL AS tenant, q.max_running, q.tenant_max_running, q.rate_per_s, q.burst, q.tenant_rate_per_s, q.tenant_burst,
  q.runway, NULL::integer AS weight, q.updated_at
FROM {schema}.queue_limits AS q
WHERE q.max_running IS NOT NULL OR q.tenant_max_running IS NOT NULL OR q.rate_per_s IS NOT NULL OR q.tenant_rate_per_s IS NOT NULL
  OR q.runway IS NOT NULL
UNION ALL
(SELECT t.queue, t.name, t.max_running, NULL, t.rate_per_s, t.burst, NULL, NULL, NULL, t.weight, t.updated_at
FROM {schema}.tenant_limits AS t
WHERE t.max_running IS NOT NULL OR t.rate_per_s IS NOT NULL OR t.weight <> 1
ORDER BY t.queue, t.name LIMIT CAST(:batch AS integer))
ORDER BY 1, 2 NULLS FIRST
