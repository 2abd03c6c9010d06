-- Purpose: fail the waiting jobs whose deadline has passed. A running one may still finish; it is not tried again after its deadline.
-- Transition: expire: ready -> failed (outbox row deleted)
-- Parameters: batch
-- Locks: outbox rows, SKIP LOCKED, then their job rows. Index: outbox_deadline, both primary keys.
WITH late AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.deadline_at <= (SELECT {schema}.clock()) AND o.phase IN ('owed', 'released')
  -- In the index's own order; locked rows are skipped, so no order can deadlock.
  ORDER BY o.deadline_at LIMIT CAST(:batch AS integer)
  FOR UPDATE SKIP LOCKED
), expired AS (
  UPDATE {schema}.jobs AS j
  SET state = 'failed', finished_at = n.now,
    failed_because = 'deadline_exceeded',
    first_error_class = coalesce(j.first_error_class, 'deadline'),
    first_error_code = coalesce(j.first_error_code, 'deadline_exceeded'),
    first_error_message = coalesce(j.first_error_message, 'the deadline passed before the job could run to its end'),
    last_error_class = 'deadline', last_error_code = 'deadline_exceeded',
    last_error_message = 'the deadline passed before the job could run to its end'
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = ANY (ARRAY(SELECT l.job_id FROM late AS l)) AND j.state = 'ready'
  RETURNING j.id
)
DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT e.id FROM expired AS e))
RETURNING o.job_id
