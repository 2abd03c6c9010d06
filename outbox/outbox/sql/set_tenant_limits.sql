-- Purpose: write a tenant's own limits and weight in a queue; govern_queue follows in the same transaction.
-- Transition: none
-- Parameters: queue, tenant; max_running, rate_per_s, burst (NULL: as the queue gives to each); weight; tokens and tokens_at (what is left of
--   its rate, or NULL: all)
-- Locks: the tenant's rows, under that of its queue. Index: tenant_limits_pkey, tenants_pkey.
WITH weighed AS (
  INSERT INTO {schema}.tenants (queue, name, weight, updated_at)
  SELECT CAST(:queue AS text), CAST(:tenant AS text), CAST(:weight AS integer), {schema}.clock()
  ON CONFLICT (queue, name) DO UPDATE SET weight = excluded.weight, updated_at = excluded.updated_at
  RETURNING name
)
INSERT INTO {schema}.tenant_limits (queue, name, max_running, rate_per_s, burst, tokens, tokens_at, updated_at)
SELECT CAST(:queue AS text), CAST(:tenant AS text), CAST(:max_running AS integer), CAST(:rate_per_s AS float8), CAST(:burst AS integer),
  CAST(:tokens AS float8), CAST(:tokens_at AS timestamptz), {schema}.clock()
ON CONFLICT (queue, name) DO UPDATE SET max_running = excluded.max_running, rate_per_s = excluded.rate_per_s, burst = excluded.burst,
  tokens = excluded.tokens, tokens_at = excluded.tokens_at, updated_at = excluded.updated_at
RETURNING name
