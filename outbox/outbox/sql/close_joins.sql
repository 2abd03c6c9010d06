-- Purpose: make due the jobs whose sets are complete, and close the sets; those, too, whose jobs wait no more (cancelled, or past their deadline)
--   and that have let all their jobs go. One transaction with the closing, so that each job is made due once.
-- Transition: none (the job stays ready, the phase owed; both become due)
-- Parameters: join_ids, held_at (when held jobs are due)
-- Locks: the rows of complete sets in id order, then the outbox rows in id order, both SKIP LOCKED: what somebody holds is left for the next
--   look; then the job rows. Index: all primary keys, join_members_awaited.
WITH complete AS MATERIALIZED (
  SELECT s.job_id FROM {schema}.joins AS s
  WHERE s.job_id = ANY (CAST(:join_ids AS uuid[])) AND s.closed_at IS NULL
    -- A subquery, since no plan can turn it into a join. What was seen stays so: nothing has to be looked at again under the lock.
    AND (SELECT true FROM {schema}.join_members AS m WHERE m.join_id = s.job_id AND m.seen IS NULL LIMIT 1) IS NULL
), mine AS MATERIALIZED (
  SELECT i.job_id, i.run_at,
    {set_is_awaited} AS waits
  FROM {schema}.joins AS i
  WHERE i.job_id = ANY (ARRAY(SELECT c.job_id FROM complete AS c)) AND i.closed_at IS NULL ORDER BY i.job_id FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT i.job_id FROM mine AS i WHERE i.waits)) AND coalesce(o.phase = 'owed', false)
    AND o.due_at >= CAST(:held_at AS timestamptz)
  ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), due AS (
  UPDATE {schema}.jobs AS j SET run_at = least(greatest(i.run_at, n.now), '6899-01-01Z')
  FROM mine AS i, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = i.job_id AND j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND j.state = 'ready'
  RETURNING j.id, j.run_at, j.priority
), owed AS (
  UPDATE {schema}.outbox AS o SET due_at = d.run_at, order_key = d.run_at - d.priority * interval '1 minute'
  FROM due AS d WHERE o.job_id = d.id AND o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
  RETURNING o.job_id
)
UPDATE {schema}.joins AS s
SET closed_at = {schema}.clock(), outcome = CASE WHEN d.id IS NULL THEN 'moot' ELSE 'started' END
FROM mine AS i LEFT JOIN due AS d ON d.id = i.job_id
WHERE s.job_id = i.job_id AND (d.id IS NOT NULL OR NOT i.waits)
RETURNING s.job_id, s.outcome
