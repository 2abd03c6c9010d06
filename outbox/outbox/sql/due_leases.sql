-- Purpose: find the leases that would have ended by now if nobody had extended them, and tell which of them have ended.
-- Transition: none
-- Parameters: since (where the look begins, or NULL), batch
-- Locks: none. Index: outbox_leased, in its own order and from `since` on, so that no look starts at dead history. A row without its job is
--   nobody's to recover. There is always a row, for the instant of the look.
SELECT n.instant, l.job_id, l.due_at, l.lease_expires_at <= n.instant AS expired
FROM (SELECT {schema}.clock() AS instant) AS n
LEFT JOIN LATERAL (
  SELECT o.job_id, o.due_at, o.lease_expires_at FROM {schema}.outbox AS o
  WHERE o.phase = 'leased' AND o.due_at >= coalesce(CAST(:since AS timestamptz), '-infinity') AND o.due_at <= n.instant
    AND EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = o.job_id AND j.lease_token = o.lease_token)
  ORDER BY o.due_at LIMIT CAST(:batch AS integer)
) AS l ON true
