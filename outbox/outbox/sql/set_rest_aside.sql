-- Purpose: of the concurrency keys for which a release has just set jobs aside, set aside what else stands in this queue's line for the same reason, a piece of
--   each tenant's: or a flood of one key would be tried job by job, and others would wait behind it. No limit depends on it. If the key has been freed
--   meanwhile, a relay's look puts the next one back (free_keys.sql).
-- Transition: none
-- Parameters: queue, job_ids (those that were set aside), most (rows looked at in each tenant's line)
-- Locks: outbox rows in id order, SKIP LOCKED. Index: primary key; outbox_owed_tenant (which the collation names) from the front of each tenant's line.
WITH aside AS MATERIALIZED (
  -- Who goes by a higher number might still go; so might, of those that go one after the other, who comes before.
  SELECT o.tenant, o.limit_group, o.limit_key, max(coalesce(o.limit_max, 1)) FILTER (WHERE o.limit_place IS NULL) AS limit_max,
    min(o.limit_place) AS limit_place, (array_agg(o.job_id ORDER BY o.limit_place, o.job_id))[1] AS first_id
  FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.last_error = 'waits for its key', false)
  GROUP BY o.tenant, o.limit_group, o.limit_key
), now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), meant AS MATERIALIZED (
  SELECT h.job_id
  FROM (SELECT DISTINCT a.tenant FROM aside AS a) AS t CROSS JOIN LATERAL (
    SELECT o.job_id, o.tenant, o.limit_group, o.limit_key, o.limit_max, o.limit_place, o.last_error FROM {schema}.outbox AS o
    -- Two bounds of one range and no equality, so that no other index has this order.
    WHERE o.phase = 'owed' AND o.queue COLLATE "C" = CAST(:queue AS text) AND (o.tenant, o.order_key) >= (t.tenant, timestamptz '-infinity')
      AND (o.tenant, o.order_key) <= (t.tenant, (SELECT n.instant FROM now AS n)) AND o.due_at <= (SELECT n.instant FROM now AS n)
    ORDER BY o.tenant, o.order_key, o.job_id LIMIT CAST(:most AS integer)
  ) AS h
  JOIN aside AS a ON a.tenant = h.tenant AND a.limit_group = h.limit_group AND a.limit_key = h.limit_key
    AND CASE WHEN h.limit_place IS NULL THEN coalesce(h.limit_max, 1) <= a.limit_max ELSE (h.limit_place, h.job_id) > (a.limit_place, a.first_id) END
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m)) AND coalesce(o.phase = 'owed', false) AND o.limit_key IS NOT NULL
    AND o.due_at <= (SELECT n.instant FROM now AS n) AND coalesce(o.last_error NOT IN ('next of its key', 'waits for its key'), true)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET order_key = o.order_key + {key_aside_for}, due_at = greatest(o.order_key, o.due_at) + {key_aside_for}, last_error = 'waits for its key'
WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
RETURNING o.job_id
