-- Purpose: walk round the tenants of one queue, beginning with the one whose turn it is, and tell of each its weight, its limits, and how much of its own line is
--   due: up to `depth` jobs, none where it is paused, or the queue is, or is governed and the caller doesn't release by limits. What it takes grows with the tenants visited and with `depth`, not with any backlog.
-- Transition: none
-- Parameters: queue, tenant (whose turn it is; it need not exist), most (tenants to visit), depth, overdue_s, kinds, versions and governed as in release.sql;
--   floor_tenants, floor_since and floor_ids (where the lines of tenants begin that have much dead history: no probe steps over it)
-- Locks: none. Index: outbox_owed_tenant (which the collation names), one probe to find the next tenant (two while floors are given), one for the head of its line.
--   queue_limits_pkey; primary keys of tenant_limits, and of jobs where kinds matter. Each limit has an order, as in due_queues.sql.
WITH RECURSIVE {pauses_here}, floors AS MATERIALIZED (
  SELECT f.tenant, f.since, f.id
  FROM unnest(CAST(:floor_tenants AS text[]), CAST(:floor_since AS timestamptz[]), CAST(:floor_ids AS uuid[])) AS f(tenant, since, id)
), ring(tenant, lap, place) AS (
  SELECT CAST(:tenant AS text), 0, 1
  UNION ALL
  SELECT m.tenant, r.lap + CASE WHEN m.tenant < r.tenant THEN 1 ELSE 0 END, r.place + 1
  FROM ring AS r
  CROSS JOIN LATERAL (SELECT min(f.tenant) AS tenant FROM floors AS f WHERE f.tenant > r.tenant) AS after
  CROSS JOIN LATERAL (
    SELECT coalesce(
      CASE WHEN after.tenant IS NULL THEN (
        SELECT o.tenant FROM {schema}.outbox AS o WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue AND o.tenant > r.tenant
        ORDER BY o.tenant, o.order_key, o.job_id LIMIT 1
      ) ELSE coalesce((
        SELECT o.tenant FROM {schema}.outbox AS o WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue AND o.tenant > r.tenant AND o.tenant < after.tenant
        ORDER BY o.tenant, o.order_key, o.job_id LIMIT 1
      ), after.tenant) END,
      -- Past the last one: once round to the first, which may be one with a floor.
      CASE WHEN r.lap = 0 THEN least((SELECT min(f.tenant) FROM floors AS f), (
        SELECT o.tenant FROM {schema}.outbox AS o WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue
          AND o.tenant < coalesce((SELECT min(f.tenant) FROM floors AS f), CAST(:tenant AS text))
        ORDER BY o.tenant, o.order_key, o.job_id LIMIT 1
      )) END) AS tenant
    OFFSET 0  -- keeps the planner from writing the probes out at each use of what they find
  ) AS m
  WHERE r.place < CAST(:most AS integer) AND (r.lap = 0 AND m.tenant > r.tenant OR m.tenant < CAST(:tenant AS text))
)
SELECT r.tenant, coalesce(w.weight, 1) AS weight, w.max_running, w.rate_per_s, w.burst, w.tokens, w.tokens_at, d.shown, d.firsts[1] AS first_due, d.ids[1] AS first_id, n.clock AS instant
FROM ring AS r CROSS JOIN now AS n
LEFT JOIN floors AS f ON f.tenant = r.tenant
LEFT JOIN LATERAL (
  SELECT t.weight, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at FROM {schema}.tenant_limits AS t
  WHERE t.queue = :queue AND t.name = r.tenant ORDER BY t.name LIMIT 1
) AS w ON true
CROSS JOIN LATERAL (
  SELECT count(*) AS shown, array_agg(h.order_key) AS firsts, array_agg(h.job_id) AS ids FROM (
    SELECT o.order_key, o.job_id FROM {schema}.outbox AS o
    -- Two bounds of one range and no equality, so that no other index has this order.
    WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue
      AND (o.tenant, o.order_key, o.job_id) >= (r.tenant, coalesce(f.since, '-infinity'), coalesce(f.id, '00000000-0000-0000-0000-000000000000'))
      AND (o.tenant, o.order_key) <= (r.tenant, (SELECT n.instant FROM now AS n))
      AND {may_go}
      AND r.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[]))
    ORDER BY o.tenant, o.order_key, o.job_id LIMIT CAST(:depth AS integer)
  ) AS h
) AS d
ORDER BY r.place
