-- Purpose: pick the hints of a governed queue that may go next, in order, as far as pauses and their tenants' limits allow. The caller holds the
--   queue, decides, and marks some of them released (release_limited.sql).
-- Transition: none
-- Parameters: queue, since and since_id, batch, overdue_s, kinds and versions (as for release.sql), governed (true), passed_over (tenants that may start nothing now),
--   chosen (jobs that have been picked already)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed, then outbox_owed_low, as for release.sql; tenant_limits_pkey. What stands before others of tenants that are
--   passed over is stepped over.
WITH {pauses_here}, usual AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND (o.order_key, o.job_id) >= (CAST(:since AS timestamptz), CAST(:since_id AS uuid))
    AND o.order_key <= (SELECT n.instant FROM now AS n)
    AND {may_go}
    AND o.tenant <> ALL (CAST(:passed_over AS text[])) AND o.job_id <> ALL (CAST(:chosen AS uuid[]))
  ORDER BY o.order_key, o.job_id LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
), low AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND {may_go}
    AND o.tenant <> ALL (CAST(:passed_over AS text[])) AND o.job_id <> ALL (CAST(:chosen AS uuid[]))
  ORDER BY o.order_key LIMIT CAST(:batch AS integer) - (SELECT count(*) FROM usual)
  FOR UPDATE OF o SKIP LOCKED
)
SELECT c.job_id, c.tenant, 0 AS released, 0 AS running, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at FROM (
  SELECT u.job_id, u.tenant, u.order_key FROM usual AS u UNION ALL SELECT l.job_id, l.tenant, l.order_key FROM low AS l
) AS c LEFT JOIN LATERAL (
  SELECT s.max_running, s.rate_per_s, s.burst, s.tokens, s.tokens_at FROM {schema}.tenant_limits AS s
  WHERE s.queue = :queue AND s.name = c.tenant LIMIT 1  -- keeps the planner to one index probe for each
) AS t ON true
ORDER BY c.order_key, c.job_id
