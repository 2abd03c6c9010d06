-- Purpose: find sets whose jobs have all met the condition long ago, and whose waiting job was not made due.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: joins_open, join_members_awaited; of each open set the awaited members up to the first that has not met the condition.
SELECT s.job_id::text AS subject, 'waits, and all ' || s.members || ' jobs of its set have ' || CASE s.condition WHEN 'ended' THEN 'ended' ELSE 'succeeded' END
  AS detail
FROM {schema}.joins AS s, (SELECT {schema}.clock() - make_interval(secs => CAST(:grace_s AS float8)) AS ago) AS n
WHERE s.closed_at IS NULL AND s.created_at <= n.ago AND NOT EXISTS (
  SELECT 1 FROM {schema}.join_members AS m LEFT JOIN {schema}.jobs AS j ON j.id = m.job_id
  WHERE m.join_id = s.job_id AND m.seen IS NULL AND NOT coalesce(j.finished_at <= n.ago AND (s.condition = 'ended' OR j.state = 'succeeded'), false))
ORDER BY s.job_id DESC LIMIT CAST(:batch AS integer)
