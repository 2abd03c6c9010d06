-- Purpose: owe again the hints of a queue that are out beyond the runway that it has now, since that has become shorter. Those that have been out for longest
--   stay. The release counts for nothing.
-- Transition: none (phase released -> owed)
-- Parameters: queue, runway (how many stay out), batch
-- Locks: outbox rows, SKIP LOCKED: whoever holds one has just claimed or ended it. Index: outbox_released for this queue (the runway that it had bounds its
--   size); primary key.
WITH beyond AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue = CAST(:queue AS text)
  ORDER BY o.released_at, o.job_id OFFSET CAST(:runway AS integer) LIMIT CAST(:batch AS integer)
), meant AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT b.job_id FROM beyond AS b)) AND coalesce(o.phase = 'released', false)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'owed', released_by = NULL, due_at = {schema}.clock(), release_count = greatest(o.release_count - 1, 0), last_error = 'limits changed'
WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m))
RETURNING o.job_id
