-- Purpose: pick the hints of one queue that go next, in order, and mark them released.
-- Transition: none (phase owed -> released)
-- Parameters: queue, batch, overdue_s (how long a hint must have been due at least), rehint_after_s and rehint_max_s (when an unclaimed hint counts as lost: doubling with each release)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed.
WITH due AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue
    AND o.order_key <= (SELECT {schema}.clock()) + interval '100 minutes' AND o.due_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:overdue_s AS float8))
  ORDER BY o.order_key LIMIT CAST(:batch AS integer)
  FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.now, release_count = o.release_count + 1,
  due_at = n.now + make_interval(secs => least(CAST(:rehint_after_s AS float8) * power(2, least(o.release_count, 20)),
    greatest(CAST(:rehint_max_s AS float8), CAST(:rehint_after_s AS float8))))
FROM (SELECT {schema}.clock() AS now) AS n
WHERE o.job_id = ANY (ARRAY(SELECT d.job_id FROM due AS d))
RETURNING o.job_id, o.release_count, o.order_key
