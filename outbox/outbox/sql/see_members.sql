-- Purpose: note of open sets which of the jobs that they await have met the condition by now; that counts from then on.
-- Transition: none
-- Parameters: join_ids, window (how many awaited members of each are looked at)
-- Locks: the sets' rows in id order, SKIP LOCKED: who holds one does the same; then their members. Index: joins_pkey, join_members_awaited, jobs_pkey.
WITH mine AS MATERIALIZED (
  SELECT s.job_id, s.condition FROM {schema}.joins AS s
  WHERE s.job_id = ANY (CAST(:join_ids AS uuid[])) AND s.closed_at IS NULL ORDER BY s.job_id FOR UPDATE SKIP LOCKED
), met AS MATERIALIZED (
  SELECT i.job_id AS join_id, m.job_id, coalesce(j.state, 'gone') AS state
  FROM mine AS i
  CROSS JOIN LATERAL (
    SELECT a.job_id FROM {schema}.join_members AS a WHERE a.join_id = i.job_id AND a.seen IS NULL ORDER BY a.job_id LIMIT CAST(:window AS integer)
  ) AS m
  LEFT JOIN {schema}.jobs AS j ON j.id = m.job_id
  WHERE CASE WHEN i.condition = 'succeeded' THEN j.state = 'succeeded' ELSE j.id IS NULL OR j.finished_at IS NOT NULL END
)
UPDATE {schema}.join_members AS m SET seen = t.state FROM met AS t WHERE m.join_id = t.join_id AND m.job_id = t.job_id
RETURNING m.join_id
