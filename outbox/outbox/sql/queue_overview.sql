-- Purpose: count, per queue, what waits, what is hinted and what runs, with the age of the oldest due job. Ended jobs are not read.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the outbox holds live jobs only and is read whole.
SELECT o.queue,
  count(*) FILTER (WHERE o.phase = 'owed' AND o.due_at > n.now) AS scheduled,
  count(*) FILTER (WHERE o.phase = 'owed' AND o.due_at <= n.now) AS due,
  count(*) FILTER (WHERE o.phase = 'released') AS released,
  count(*) FILTER (WHERE o.phase = 'leased') AS running,
  CAST(extract(epoch FROM n.now - min(o.due_at) FILTER (WHERE o.phase = 'owed' AND o.due_at <= n.now)) AS float8) AS oldest_due_s
FROM {schema}.outbox AS o, (SELECT {schema}.clock() AS now) AS n
GROUP BY o.queue, n.now ORDER BY o.queue
