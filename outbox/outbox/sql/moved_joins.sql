-- Purpose: look through a piece of the open sets, in the order of their jobs' ids, and say of which the first job that is awaited has met the
--   condition, or nothing is awaited, or nobody waits any more.
-- Transition: none
-- Parameters: after (where the piece begins), window (sets looked at)
-- Locks: none. Index: joins_open, join_members_awaited, and for each set one row each of jobs and outbox by primary key: however many members
--   a set has, a look that finds nothing costs the same. There is a row for each set looked at.
SELECT p.job_id, coalesce((SELECT false FROM {schema}.outbox AS o WHERE o.job_id = p.job_id LIMIT 1),
    -- A row that was lost: see set_is_awaited.sql.
    (SELECT j.state <> 'ready' FROM {schema}.jobs AS j WHERE j.id = p.job_id LIMIT 1), true) OR CASE
    WHEN h.job_id IS NULL THEN true
    WHEN p.condition = 'succeeded' THEN coalesce((SELECT j.state = 'succeeded' FROM {schema}.jobs AS j WHERE j.id = h.job_id), false)
    ELSE coalesce((SELECT j.finished_at IS NOT NULL FROM {schema}.jobs AS j WHERE j.id = h.job_id), true)
  END AS moved
FROM (
  SELECT s.job_id, s.condition FROM {schema}.joins AS s
  WHERE s.closed_at IS NULL AND s.job_id > CAST(:after AS uuid) ORDER BY s.job_id LIMIT CAST(:window AS integer)
) AS p
LEFT JOIN LATERAL (
  SELECT m.job_id FROM {schema}.join_members AS m WHERE m.join_id = p.job_id AND m.seen IS NULL ORDER BY m.job_id LIMIT 1
) AS h ON true
ORDER BY p.job_id
