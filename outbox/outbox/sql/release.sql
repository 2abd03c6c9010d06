-- Purpose: pick the hints of one queue that go next, in order, and mark them released. Nothing that is paused: not that queue at all, and of it
--   no tenant and no kind; keepers take theirs out of the line (set_aside.sql), so that few are stepped over here. Nothing of a governed queue:
--   that is released under its limits (release_limited.sql).
-- Transition: none (phase owed -> released)
-- Parameters: queue, since and since_id (the place where the queue's line begins), batch, overdue_s (how long a hint must have been due
--   at least), kinds and versions (what the caller can run, or NULL for all), rehint_after_s and rehint_max_s (when an unclaimed hint
--   counts as lost: doubling with each release)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed from that place up to now, where nothing that is due later stands but jobs of high
--   priority that are due within minutes; then outbox_owed_low for the jobs of negative priority that have not aged enough to stand there too.
--   The pauses, a few rows, are read whole; primary key of jobs for each row where a kind is paused; queue_limits_pkey.
WITH paused AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything' OR (p.scope = 'queue' AND p.name = :queue)), false)
      OR coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = :queue), false) AS shut,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'tenant'), '{}') AS tenants,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}') AS kinds
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), now AS MATERIALIZED (
  -- No instant in a paused or governed queue: nothing is due by then, which the index says without a look. One condition for all other pauses, which the
  -- planner takes for mostly true: were it to expect few rows, it would read and sort all that is due.
  SELECT CASE WHEN NOT p.shut THEN {schema}.clock() END AS instant, p.tenants = '{}' AND p.kinds = '{}' AS clear FROM paused AS p
), usual AS MATERIALIZED (
  SELECT o.job_id, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND (o.order_key, o.job_id) >= (CAST(:since AS timestamptz), CAST(:since_id AS uuid))
    AND o.order_key <= (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
    AND ((SELECT n.clear FROM now AS n) OR (
      o.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[])) AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END))
    AND (CAST(:kinds AS text[]) IS NULL OR coalesce((
      SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
      WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
  ORDER BY o.order_key, o.job_id LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
), low AS MATERIALIZED (
  SELECT o.job_id, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
    AND ((SELECT n.clear FROM now AS n) OR (
      o.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[])) AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END))
    AND (CAST(:kinds AS text[]) IS NULL OR coalesce((
      SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
      WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
  ORDER BY o.order_key LIMIT CAST(:batch AS integer) - (SELECT count(*) FROM usual)
  FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1,
  due_at = n.instant + make_interval(secs => least(CAST(:rehint_after_s AS float8) * power(2, least(o.release_count, 20)),
    greatest(CAST(:rehint_max_s AS float8), CAST(:rehint_after_s AS float8))))
FROM now AS n
WHERE o.job_id = ANY (ARRAY(SELECT u.job_id FROM usual AS u UNION ALL SELECT l.job_id FROM low AS l))
RETURNING o.job_id, o.release_count, o.order_key
