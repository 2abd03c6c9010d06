-- Purpose: owe again the hints that went out before their queue's limits last changed, and those that are more than these allow: a release that had
--   begun before there were limits did not look at them. They go again as the limits allow. The release counts for nothing.
-- Transition: none (phase released -> owed)
-- Parameters: queues (governed ones), batch
-- Locks: outbox rows, SKIP LOCKED: whoever holds one has just claimed or ended it, or is found by the next sweep. Index: outbox_released (the runway
--   bounds its size) and outbox_leases for these queues; queue_limits_pkey, tenant_limits_pkey.
WITH ruled AS MATERIALIZED (
  SELECT q.name, q.updated_at, q.max_running, q.tenant_max_running, q.burst, q.tenant_burst FROM {schema}.queue_limits AS q
  WHERE q.governed AND q.name = ANY (CAST(:queues AS text[]))
), hinted AS MATERIALIZED (
  SELECT o.job_id, o.queue, o.tenant, o.released_at, row_number() OVER (PARTITION BY o.queue ORDER BY o.released_at, o.job_id) AS place,
    row_number() OVER (PARTITION BY o.queue, o.tenant ORDER BY o.released_at, o.job_id) AS tenant_place
  FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue = ANY (CAST(:queues AS text[]))
), running AS MATERIALIZED (
  SELECT o.queue, o.tenant, count(*) AS jobs FROM {schema}.outbox AS o
  WHERE o.phase = 'leased' AND o.queue = ANY (CAST(:queues AS text[])) AND o.lease_expires_at > (SELECT {schema}.clock())
    AND EXISTS (SELECT 1 FROM hinted)
  GROUP BY o.queue, o.tenant
), stale AS MATERIALIZED (
  SELECT h.job_id FROM hinted AS h JOIN ruled AS q ON q.name = h.queue
  LEFT JOIN {schema}.tenant_limits AS t ON t.queue = h.queue AND t.name = h.tenant
  WHERE h.released_at < q.updated_at OR h.place > q.burst
    OR h.place > q.max_running - coalesce((SELECT sum(r.jobs) FROM running AS r WHERE r.queue = h.queue), 0)
    OR h.tenant_place > coalesce(t.max_running, q.tenant_max_running)
      - coalesce((SELECT sum(r.jobs) FROM running AS r WHERE r.queue = h.queue AND r.tenant = h.tenant), 0)
    OR h.tenant_place > CASE WHEN t.rate_per_s IS NULL THEN q.tenant_burst ELSE t.burst END
  ORDER BY h.job_id LIMIT CAST(:batch AS integer)
), meant AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT s.job_id FROM stale AS s)) AND coalesce(o.phase = 'released', false)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'owed', released_by = NULL, due_at = {schema}.clock(), release_count = greatest(o.release_count - 1, 0), last_error = 'limits changed'
WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m))
RETURNING o.job_id
