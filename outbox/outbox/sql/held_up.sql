-- Purpose: of some queues, for how long jobs have been due whose hints are out, or that were given back to be offered later: what waits without being owed a hint now.
-- Transition: none
-- Parameters: queues
-- Locks: none. Index: outbox_released and outbox_owed, 25 rows of a queue at most, and jobs_pkey for each of these.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), figures AS MATERIALIZED (
  SELECT q.queue FROM unnest(CAST(:queues AS text[])) AS q(queue)
), unclaimed AS MATERIALIZED (
  {unclaimed_of}
), put_off AS MATERIALIZED (
  {put_off_of}
)
SELECT f.queue, greatest(u.due_s, p.due_s, 0) AS due_s
FROM figures AS f LEFT JOIN unclaimed AS u ON u.queue = f.queue LEFT JOIN put_off AS p ON p.queue = f.queue
WHERE u.due_s IS NOT NULL OR p.due_s IS NOT NULL
