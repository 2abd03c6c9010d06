-- Purpose: note of open sets which of the jobs that they await have met the condition by now; that counts from then on. Where nobody waits any more
--   (the job that did was cancelled, or is past its deadline), the awaited are let go, as a purge keeps what is awaited.
-- Transition: none
-- Parameters: join_ids, held_at (when held jobs are due), after_join and after_member (the place that this piece begins after), window (awaited
--   members looked at, of all sets together)
-- Locks: the rows of the sets of which there is something to note, in id order, SKIP LOCKED: who holds one does the same; then their members.
--   Index: joins_pkey, join_members_awaited, primary keys. It tells the place at which the piece ends.
WITH looked AS MATERIALIZED (
  SELECT s.job_id AS join_id, s.condition, s.waits, m.job_id, m.place
  FROM (
    SELECT i.job_id, i.condition,
      {set_is_awaited} AS waits
    FROM {schema}.joins AS i
    WHERE i.job_id = ANY (CAST(:join_ids AS uuid[])) AND i.job_id >= CAST(:after_join AS uuid) AND i.closed_at IS NULL ORDER BY i.job_id
  ) AS s
  CROSS JOIN LATERAL (
    SELECT a.job_id, a.ctid AS place FROM {schema}.join_members AS a
    WHERE a.join_id = s.job_id AND a.seen IS NULL
      AND a.job_id > CASE WHEN s.job_id = CAST(:after_join AS uuid) THEN CAST(:after_member AS uuid) ELSE '00000000-0000-0000-0000-000000000000' END
    ORDER BY a.job_id LIMIT CAST(:window AS integer)
  ) AS m
  LIMIT CAST(:window AS integer)
), met AS MATERIALIZED (
  SELECT l.join_id, l.job_id, l.place, CASE WHEN l.waits THEN coalesce(j.state, 'gone') ELSE 'moot' END AS state
  FROM looked AS l
  LEFT JOIN LATERAL (
    SELECT k.state, k.finished_at FROM {schema}.jobs AS k WHERE k.id = l.job_id
    LIMIT 1  -- keeps the planner to one index probe per member
  ) AS j ON true
  WHERE NOT l.waits OR CASE WHEN l.condition = 'succeeded' THEN j.state = 'succeeded' ELSE j.state IS NULL OR j.finished_at IS NOT NULL END
), mine AS MATERIALIZED (
  SELECT s.job_id FROM {schema}.joins AS s
  WHERE s.job_id = ANY (ARRAY(SELECT t.join_id FROM met AS t)) AND s.closed_at IS NULL ORDER BY s.job_id FOR UPDATE SKIP LOCKED
), noted AS (
  -- By their places, one by one: a join by the key might read all that the sets await.
  UPDATE {schema}.join_members AS m SET seen = t.state FROM met AS t
  WHERE m.ctid = t.place AND m.seen IS NULL AND t.join_id = ANY (ARRAY(SELECT i.job_id FROM mine AS i))
  RETURNING m.join_id
)
SELECT l.join_id, l.job_id, n.looked_at, (SELECT count(*) FROM noted AS e) AS noted
FROM looked AS l, (SELECT count(*) AS looked_at FROM looked AS a) AS n
ORDER BY l.join_id DESC, l.job_id DESC LIMIT 1
