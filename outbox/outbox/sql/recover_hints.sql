-- Purpose: owe again the hints that were released and never claimed. In a queue that the broker shows empty, the hint is lost, and so is, much sooner, one whose
--   sender has gone; in a queue that is not empty, it most likely still waits there, so that only a much longer silence counts.
--   In a governed queue it pauses then, for longer each time, so that one that nobody can run doesn't keep the slots from others; not for its sender's end.
-- Transition: none (phase released -> owed)
-- Parameters: empty_queues (NULL means: no broker holds anything), busy_after_s, gone_after_s (as in overdue_hints.sql), batch
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_released (the runway bounds its size); queue_limits_pkey for each row.
WITH lost AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.phase = 'released' AND (
    (o.due_at <= (SELECT {schema}.clock()) OR ({sender_gone}))
      AND (CAST(:empty_queues AS text[]) IS NULL OR o.queue = ANY (CAST(:empty_queues AS text[])))
    OR o.due_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:busy_after_s AS float8))
  )
  -- In the index's own order, so that no plan walks the whole table by id instead; locked rows are skipped, so no order can deadlock.
  ORDER BY o.queue, o.released_at LIMIT CAST(:batch AS integer)
  FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.outbox AS o SET phase = 'owed', released_by = NULL, last_error = 'hint lost',
  due_at = {schema}.clock() + CASE WHEN o.due_at <= {schema}.clock() AND (SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = o.queue) THEN
    make_interval(secs => least(power(2, least(o.release_count, 20)), 300)) ELSE interval '0' END
WHERE o.job_id = ANY (ARRAY(SELECT l.job_id FROM lost AS l))
RETURNING o.job_id
