-- Purpose: pick the hints of one queue that go next, in order, and mark them released. Nothing that is paused: not that queue at all, and of it
--   no tenant and no kind; keepers take theirs out of the line (set_aside.sql), so that few are stepped over here. Nothing of a governed queue:
--   that is released under its limits (release_shares.sql, release_picked.sql).
-- Transition: none (phase owed -> released; what has to wait for its concurrency key is set aside instead, and returned with a count of 0)
-- Parameters: queue, since and since_id (the place where the queue's line begins), batch, overdue_s (how long a hint must have been due
--   at least), kinds and versions (what the caller can run, or NULL for all), governed (whether the caller releases by limits: false, whoever runs
--   this), rehint_after_s and rehint_max_s (when an unclaimed hint counts as lost)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed from that place up to now, where nothing that is due later stands but jobs of high
--   priority that are due within minutes; then outbox_owed_low for the jobs of negative priority that have not aged enough to stand there too.
--   The pauses, a few rows, are read whole; primary key of jobs for each row where a kind is paused; queue_limits_pkey.
WITH {pauses_here}, usual AS MATERIALIZED (
  SELECT o.job_id, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND (o.order_key, o.job_id) >= (CAST(:since AS timestamptz), CAST(:since_id AS uuid))
    AND o.order_key <= (SELECT n.instant FROM now AS n)
    AND {may_go}
  ORDER BY o.order_key, o.job_id LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
), low AS MATERIALIZED (
  SELECT o.job_id, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND {may_go}
  ORDER BY o.order_key LIMIT CAST(:batch AS integer) - (SELECT count(*) FROM usual)
  FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1,
  due_at = {rehint_at}, released_by = pg_catalog.pg_backend_pid()
FROM now AS n
WHERE o.job_id = ANY (ARRAY(SELECT u.job_id FROM usual AS u UNION ALL SELECT l.job_id FROM low AS l))
RETURNING o.job_id, CASE o.phase WHEN 'released' THEN o.release_count ELSE 0 END, o.order_key
