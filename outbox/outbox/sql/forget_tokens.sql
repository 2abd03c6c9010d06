-- Purpose: forget tenants that have no limits or weight of their own, once all is there again that their rate allows.
-- Transition: none
-- Parameters: queues, batch
-- Locks: tenants' rows, SKIP LOCKED. Index: tenant_limits_pkey for the tenants of these queues.
WITH full_again AS MATERIALIZED (
  SELECT t.queue, t.name FROM {schema}.tenant_limits AS t
  LEFT JOIN {schema}.queue_limits AS q ON q.name = t.queue
  WHERE t.queue = ANY (CAST(:queues AS text[]))
    AND t.max_running IS NULL AND t.rate_per_s IS NULL AND t.weight = 1
    AND coalesce(t.tokens + q.tenant_rate_per_s * extract(epoch FROM {schema}.clock() - t.tokens_at) >= q.tenant_burst, true)
  ORDER BY t.queue, t.name LIMIT CAST(:batch AS integer)
  FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM {schema}.tenant_limits AS t
USING full_again AS f WHERE t.queue = f.queue AND t.name = f.name
RETURNING t.name
