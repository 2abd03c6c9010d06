-- Purpose: count, per queue, what waits, what is set aside for a pause of its tenant or kind, what is due but put off, what is hinted and what runs, with the age of the
--   oldest due job that is owed a hint. Ended jobs are not read.
-- Transition: none
-- Parameters: aside_at (the place out of the line)
-- Locks: none. Index: none: the outbox holds live jobs only and is read whole.
SELECT o.queue,
  count(*) FILTER (WHERE o.phase = 'owed' AND q.due_at > n.now AND NOT (q.aside OR q.put_off)) AS scheduled,
  count(*) FILTER (WHERE q.aside) AS aside,
  count(*) FILTER (WHERE q.put_off) AS put_off,
  count(*) FILTER (WHERE o.phase = 'owed' AND q.due_at <= n.now) AS due,
  count(*) FILTER (WHERE o.phase = 'released') AS released,
  count(*) FILTER (WHERE o.phase = 'leased') AS running,
  CAST(extract(epoch FROM n.now - min(q.due_at) FILTER (WHERE o.phase = 'owed' AND q.due_at <= n.now)) AS float8) AS oldest_due_s
FROM {schema}.outbox AS o, (SELECT {schema}.clock() AS now) AS n,
  LATERAL (SELECT o.phase = 'owed' AND o.order_key = CAST(:aside_at AS timestamptz) AND coalesce(o.last_error = 'paused', false) AS aside,
    -- Its hint went out and came to nothing; one that was too early is not due.
    o.phase = 'owed' AND o.due_at > n.now AND o.order_key <= n.now AND coalesce(o.last_error <> 'not due', false) AS put_off,
    {due_by_key} AS due_at) AS q
GROUP BY o.queue, n.now ORDER BY o.queue
