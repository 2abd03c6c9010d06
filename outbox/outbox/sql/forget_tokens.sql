-- Purpose: forget tenants that have no limits or weight of their own, once all is there again that their rate allows; where none applies, after a day: until then one that is
--   set again finds what was left.
-- Transition: none
-- Parameters: queues (NULL: all), batch
-- Locks: tenants' rows, SKIP LOCKED. Index: tenant_limits_pkey for the tenants of these queues.
WITH full_again AS MATERIALIZED (
  SELECT t.queue, t.name FROM {schema}.tenant_limits AS t
  LEFT JOIN {schema}.queue_limits AS q ON q.name = t.queue
  WHERE (CAST(:queues AS text[]) IS NULL OR t.queue = ANY (CAST(:queues AS text[])))
    AND t.max_running IS NULL AND t.rate_per_s IS NULL AND t.weight = 1
    AND CASE WHEN t.tokens IS NULL THEN true
      WHEN q.tenant_rate_per_s IS NULL THEN t.tokens_at < {schema}.clock() - interval '1 day'
      ELSE t.tokens + q.tenant_rate_per_s * extract(epoch FROM {schema}.clock() - t.tokens_at) >= q.tenant_burst END
  ORDER BY t.queue, t.name LIMIT CAST(:batch AS integer)
  FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM {schema}.tenant_limits AS t
USING full_again AS f WHERE t.queue = f.queue AND t.name = f.name
RETURNING t.name
