-- Purpose: read a queue's limits to change them, and keep everybody else from releasing by them meanwhile; and the time, once they are held: no release has spent anything later.
-- Transition: none
-- Parameters: queue
-- Locks: the queue's row: a release that holds it takes milliseconds. Index: queue_limits_pkey.
WITH held AS MATERIALIZED (
  SELECT q.name, q.max_running, q.tenant_max_running, q.rate_per_s, q.burst, q.tenant_rate_per_s, q.tenant_burst, q.runway, q.tokens, q.tokens_at, q.updated_at
  FROM {schema}.queue_limits AS q WHERE q.name = CAST(:queue AS text) FOR NO KEY UPDATE
)
SELECT h.*, {schema}.clock() AS now, current_setting('transaction_isolation') AS isolation FROM held AS h
