-- Purpose: read a whole workflow: from any of its jobs up to the first one, and from there all that followed, level by level.
-- Transition: none
-- Parameters: job_id, depth (levels at most, in each direction), batch (jobs at most), left_limit (awaited jobs counted for each)
-- Locks: none. Index: jobs_pkey upwards, jobs_parent downwards, join_members_awaited, with jobs_pkey for each member not counted yet until left_limit are left. The limit ends the walk: a level is read only when it is needed.
WITH RECURSIVE up AS (
  SELECT j.id, j.parent_id, 0 AS level FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
  UNION ALL
  SELECT p.id, p.parent_id, u.level + 1 FROM up AS u JOIN {schema}.jobs AS p ON p.id = u.parent_id
  WHERE u.level < CAST(:depth AS integer)
), down AS (
  SELECT u.id, 0 AS level FROM (SELECT t.id FROM up AS t ORDER BY t.level DESC LIMIT 1) AS u
  UNION ALL
  SELECT c.id, d.level + 1 FROM down AS d JOIN {schema}.jobs AS c ON c.parent_id = d.id
  WHERE d.level < CAST(:depth AS integer)
), tree AS MATERIALIZED (
  SELECT d.id, d.level FROM down AS d LIMIT CAST(:batch AS integer)
)
SELECT t.level, j.id, j.parent_id, j.correlation_id, j.tenant, j.kind, j.logical_key, j.state, j.attempt_count, j.created_at, j.finished_at,
  j.last_error_code, s.condition AS waits_until, s.members AS waits_for, s.closed_at AS waited_until,
  -- By the members' states: the look that counts one may come up to a minute after its end.
  (SELECT count(*) FROM (SELECT 1 FROM {schema}.join_members AS m
    LEFT JOIN LATERAL (SELECT k.state, k.finished_at FROM {schema}.jobs AS k WHERE k.id = m.job_id LIMIT 1) AS e ON true
    WHERE m.join_id = s.job_id AND m.seen IS NULL AND s.closed_at IS NULL
      AND NOT CASE WHEN s.condition = 'succeeded' THEN e.state IS NOT DISTINCT FROM 'succeeded' ELSE e.state IS NULL OR e.finished_at IS NOT NULL END
    LIMIT CAST(:left_limit AS integer)) AS a) AS waits_left
FROM tree AS t JOIN {schema}.jobs AS j ON j.id = t.id LEFT JOIN {schema}.joins AS s ON s.job_id = j.id
ORDER BY t.level, j.id
