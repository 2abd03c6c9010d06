-- Purpose: owe again the hints that are out for what is paused, so that they are stale when they arrive. The release counts for nothing.
-- Transition: none (phase released -> owed)
-- Parameters: batch
-- Locks: outbox rows, SKIP LOCKED: whoever holds one has just claimed or ended it, or is found by the next sweep. Index: outbox_released (the runway
--   bounds its size); primary key of jobs for each row where a kind is paused. The pauses are read whole.
WITH paused AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything'), false) AS everything,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'queue'), '{}') AS queues,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'tenant'), '{}') AS tenants,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}') AS kinds
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), meant AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.phase = 'released' AND (
    (SELECT p.everything FROM paused AS p)
    OR o.queue = ANY (CAST((SELECT p.queues FROM paused AS p) AS text[]))
    OR o.tenant = ANY (CAST((SELECT p.tenants FROM paused AS p) AS text[]))
    OR CASE WHEN (SELECT p.kinds <> '{}' FROM paused AS p) THEN
      (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) = ANY (CAST((SELECT p.kinds FROM paused AS p) AS text[])) ELSE false END
  )
  -- In the index's own order; locked rows are skipped, so no order can deadlock.
  ORDER BY o.queue, o.released_at LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'owed', due_at = {schema}.clock(), release_count = greatest(o.release_count - 1, 0), last_error = 'paused'
WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m))
RETURNING o.job_id
