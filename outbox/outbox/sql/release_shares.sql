-- Purpose: pick each tenant's share of the hints of one queue that go next, each from the head of its own line, and mark them released. Nothing that is paused, and
--   nothing of a governed queue unless the caller releases by limits: then it holds the queue.
-- Transition: none (phase owed -> released; what has to wait for its concurrency key is set aside instead, and returned with a count of 0)
-- Parameters: queue; tenants, shares, since_keys and since_ids (per tenant, how many at most, and where its line begins); overdue_s, kinds, versions, governed,
--   rehint_after_s and rehint_max_s as in release.sql
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed_tenant (which the collation names) from each place on. The pauses, a few rows, are read whole; queue_limits_pkey; primary key of jobs for each
--   row where kinds matter.
WITH {pauses_here}, picked AS MATERIALIZED (
  SELECT h.job_id
  FROM unnest(CAST(:tenants AS text[]), CAST(:shares AS integer[]), CAST(:since_keys AS timestamptz[]), CAST(:since_ids AS uuid[])) AS s(tenant, share, since, id)
  CROSS JOIN LATERAL (
    SELECT o.job_id FROM {schema}.outbox AS o
    -- Two bounds of one range and no equality, so that no other index has this order.
    WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue AND (o.tenant, o.order_key, o.job_id) >= (s.tenant, s.since, s.id)
      AND (o.tenant, o.order_key) <= (s.tenant, (SELECT n.instant FROM now AS n))
      AND {may_go}
      AND s.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[]))
    ORDER BY o.tenant, o.order_key, o.job_id LIMIT s.share
    FOR UPDATE OF o SKIP LOCKED
  ) AS h
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1,
  due_at = {rehint_at}, released_by = pg_catalog.pg_backend_pid()
FROM now AS n
WHERE o.job_id = ANY (ARRAY(SELECT p.job_id FROM picked AS p))
RETURNING o.job_id, CASE o.phase WHEN 'released' THEN o.release_count ELSE 0 END, o.order_key, o.tenant, o.released_at
