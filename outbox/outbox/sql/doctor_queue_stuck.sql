-- Purpose: find queues with due hints that nobody releases: the oldest has waited for long, and none has gone out for as long.
--   What is paused is meant to wait.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: none: the outbox holds live jobs only and is read whole, once.
SELECT q.queue AS subject, q.due || ' hints are due, the oldest since ' || q.oldest || '; none has gone out since '
  || coalesce(q.last_released::text, 'ever') AS detail
FROM (SELECT {schema}.clock() - make_interval(secs => CAST(:grace_s AS float8)) AS ago) AS n, LATERAL (
  SELECT o.queue, count(*) FILTER (WHERE o.phase = 'owed' AND o.due_at <= n.ago) AS due,
    min(o.due_at) FILTER (WHERE o.phase = 'owed') AS oldest, max(o.released_at) AS last_released
  FROM {schema}.outbox AS o
  WHERE o.phase <> 'owed' OR o.due_at > n.ago OR NOT EXISTS (
    {pause_of_row})
  GROUP BY o.queue
) AS q
WHERE q.due > 0 AND coalesce(q.last_released <= n.ago, true)
ORDER BY q.oldest LIMIT CAST(:batch AS integer)
