-- Purpose: write a tenant's own limits and weight in a queue, or, under the name '', what a change of the queue's rates leaves to tenants of which nothing is
--   written down; govern_queue follows in the same transaction.
-- Transition: none
-- Parameters: queue, tenant; max_running, rate_per_s, burst (NULL: as the queue gives to each); weight; tokens and tokens_at (what is left of
--   its rate, or NULL: all)
-- Locks: the tenant's row, under that of its queue. Index: tenant_limits_pkey.
INSERT INTO {schema}.tenant_limits (queue, name, max_running, rate_per_s, burst, weight, tokens, tokens_at, updated_at)
SELECT CAST(:queue AS text), CAST(:tenant AS text), CAST(:max_running AS integer), CAST(:rate_per_s AS float8), CAST(:burst AS integer),
  CAST(:weight AS integer), CAST(:tokens AS float8), CAST(:tokens_at AS timestamptz), {schema}.clock()
ON CONFLICT (queue, name) DO UPDATE SET max_running = excluded.max_running, rate_per_s = excluded.rate_per_s, burst = excluded.burst,
  weight = excluded.weight, tokens = excluded.tokens, tokens_at = excluded.tokens_at, updated_at = excluded.updated_at
RETURNING name
