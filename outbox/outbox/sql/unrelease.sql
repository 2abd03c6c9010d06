-- Purpose: owe again, after a pause, the hints that the broker nacked or returned or that were cut off; if nobody has moved them since.
-- Transition: none (phase released -> owed)
-- Parameters: job_ids, release_counts (which release is meant), pause_s, reason, blameless (this release then counts for nothing)
-- Locks: outbox rows in id order, SKIP LOCKED: whoever holds one has just claimed or ended it. Index: primary key; coalesce keeps the
--   planner from outbox_released, where it would walk everybody's hints, dead ones included.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  JOIN unnest(CAST(:job_ids AS uuid[]), CAST(:release_counts AS integer[])) AS r(job_id, release_count)
    ON r.job_id = o.job_id AND r.release_count = o.release_count
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'released', false)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'owed', released_by = NULL, due_at = {schema}.clock() + make_interval(secs => CAST(:pause_s AS float8)), last_error = CAST(:reason AS text),
  release_count = o.release_count - CASE WHEN CAST(:blameless AS boolean) THEN 1 ELSE 0 END
WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM mine AS m))
RETURNING o.queue
