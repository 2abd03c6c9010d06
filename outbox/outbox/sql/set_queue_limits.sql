-- Purpose: write a queue's limits; govern_queue follows in the same transaction.
-- Transition: none
-- Parameters: queue; max_running, tenant_max_running, rate_per_s, burst, tenant_rate_per_s, tenant_burst, runway (NULL: none); tokens and tokens_at (what is
--   left of the rate, or NULL: all)
-- Locks: the queue's row, which hold_queue has locked. Index: queue_limits_pkey.
UPDATE {schema}.queue_limits AS q
SET max_running = CAST(:max_running AS integer), tenant_max_running = CAST(:tenant_max_running AS integer), rate_per_s = CAST(:rate_per_s AS float8),
  burst = CAST(:burst AS integer), tenant_rate_per_s = CAST(:tenant_rate_per_s AS float8), tenant_burst = CAST(:tenant_burst AS integer),
  runway = CAST(:runway AS integer),
  tokens = CAST(:tokens AS float8), tokens_at = CAST(:tokens_at AS timestamptz)
WHERE q.name = CAST(:queue AS text)
RETURNING q.name
