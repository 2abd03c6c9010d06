-- Purpose: owe again the hints that are out for what is paused, so that they are stale when they arrive. The release counts for nothing.
-- Transition: none (phase released -> owed)
-- Parameters: batch
-- Locks: outbox rows, SKIP LOCKED: whoever holds one has just claimed or ended it, or is found by the next sweep. Index: outbox_released (the runway
--   bounds its size); primary key of jobs for each row where a kind is paused. The pauses are read whole.
WITH paused AS MATERIALIZED (
  SELECT {paused_queues}, {paused_names}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), meant AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.phase = 'released' AND (
    (SELECT p.everything FROM paused AS p)
    OR o.queue = ANY (CAST((SELECT p.queues FROM paused AS p) AS text[]))
    OR NOT ({unpaused})
  )
  -- In the index's own order; locked rows are skipped, so no order can deadlock.
  ORDER BY o.queue, o.released_at LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'owed', released_by = NULL, due_at = {schema}.clock(), release_count = greatest(o.release_count - 1, 0), last_error = 'paused'
WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m))
RETURNING o.job_id
