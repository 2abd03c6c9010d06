-- Purpose: owe again the hints that were released and never claimed. In a queue that the broker shows empty, the hint is lost; in
--   one that is not, it most likely still waits there, so that only a much longer silence counts.
-- Transition: none (phase released -> owed)
-- Parameters: empty_queues (NULL means: no broker holds anything), busy_after_s, batch
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_released (the runway bounds its size).
WITH lost AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.phase = 'released' AND o.due_at <= (SELECT {schema}.clock()) AND (
    CAST(:empty_queues AS text[]) IS NULL OR o.queue = ANY (CAST(:empty_queues AS text[]))
    OR o.due_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:busy_after_s AS float8))
  )
  -- In the index's own order, so that no plan walks the whole table by id instead; locked rows are skipped, so no order can deadlock.
  ORDER BY o.queue, o.released_at LIMIT CAST(:batch AS integer)
  FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.outbox AS o SET phase = 'owed', due_at = {schema}.clock(), last_error = 'hint lost'
WHERE o.job_id = ANY (ARRAY(SELECT l.job_id FROM lost AS l))
RETURNING o.job_id
