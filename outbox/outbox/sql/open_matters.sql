-- Purpose: count what waits for a person: open dead letters by queue, and effects whose outcome is not known; and tell the time.
-- Transition: none
-- Parameters: most (no count goes beyond it)
-- Locks: none. Index: dead_letters_open and effects_open, each no further than the limit.
WITH letters AS MATERIALIZED (
  SELECT d.queue FROM {schema}.dead_letters AS d WHERE d.discarded_at IS NULL ORDER BY d.failed_at DESC, d.job_id DESC LIMIT CAST(:most AS integer)
), unknown AS MATERIALIZED (
  SELECT e.state FROM {schema}.effects AS e WHERE e.state IN ('pending', 'uncertain') ORDER BY e.created_at LIMIT CAST(:most AS integer)
)
SELECT {schema}.clock() AS now,
  (SELECT jsonb_object_agg(g.queue, g.letters) FROM (SELECT l.queue, count(*) AS letters FROM letters AS l GROUP BY l.queue) AS g) AS letters,
  (SELECT count(*) FROM unknown AS u WHERE u.state = 'uncertain') AS uncertain,
  (SELECT count(*) FROM unknown AS u WHERE u.state = 'pending') AS pending
