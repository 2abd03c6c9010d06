-- Purpose: pick, of a governed queue, the hints of jobs of negative priority that have not aged, in order, as far as pauses and their tenants' limits allow. The
--   caller holds the queue, decides, and marks some of them released (release_picked.sql).
-- Transition: none
-- Parameters: queue, batch, overdue_s, kinds, versions and governed as in release.sql; passed_over (tenants that may start nothing now)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed_low, where what stands before others of tenants that are passed over is stepped over; tenant_limits_pkey.
WITH {pauses_here}, low AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND {may_go}
    AND o.tenant <> ALL (CAST(:passed_over AS text[]))
  ORDER BY o.order_key LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
)
SELECT l.job_id, l.tenant, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at
FROM low AS l LEFT JOIN LATERAL (
  SELECT s.max_running, s.rate_per_s, s.burst, s.tokens, s.tokens_at FROM {schema}.tenant_limits AS s
  WHERE s.queue = :queue AND s.name = l.tenant ORDER BY s.name LIMIT 1  -- keeps the planner to one index probe for each
) AS t ON true
ORDER BY l.order_key, l.job_id
