-- Purpose: hold a governed queue for a release, so that whoever counts is the only one to give its slots away. No row: it is not governed, or
--   somebody else is at it.
-- Transition: none
-- Parameters: queue
-- Locks: the queue's row, SKIP LOCKED, for a short transaction, which the server ends after three seconds of silence. Index: queue_limits_pkey.
SELECT q.max_running, q.tenant_max_running, q.rate_per_s, q.burst, q.tenant_rate_per_s, q.tenant_burst, q.tokens, q.tokens_at,
  -- Whoever stops in the middle, frozen or cut off, keeps the queue for no longer.
  set_config('idle_in_transaction_session_timeout', '3s', true) AS bounded
FROM {schema}.queue_limits AS q WHERE q.name = CAST(:queue AS text) AND q.governed FOR NO KEY UPDATE SKIP LOCKED
