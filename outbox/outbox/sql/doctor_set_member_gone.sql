-- Purpose: find jobs that wait for one to succeed that is not there: deleted by hand, or purged just before the set was committed.
-- Transition: none
-- Parameters: batch
-- Locks: none. Index: joins_open, join_members_awaited, primary keys; of each open set the awaited members up to the first that is gone.
SELECT s.job_id::text AS subject, 'waits for job ' || g.job_id || ' to succeed, which is not there' AS detail
FROM {schema}.joins AS s CROSS JOIN LATERAL (
  SELECT m.job_id FROM {schema}.join_members AS m
  WHERE m.join_id = s.job_id AND m.seen IS NULL AND (SELECT true FROM {schema}.jobs AS j WHERE j.id = m.job_id) IS NULL
  ORDER BY m.job_id LIMIT 1
) AS g
WHERE s.closed_at IS NULL AND s.condition = 'succeeded' AND EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.job_id = s.job_id)
ORDER BY s.job_id DESC LIMIT CAST(:batch AS integer)
