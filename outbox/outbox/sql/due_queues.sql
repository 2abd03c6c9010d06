-- Purpose: name the queues in which a hint is due, each with the number of hints that are out and unclaimed.
-- Transition: none
-- Parameters: runway (no count goes beyond it)
-- Locks: none. Index: outbox_owed (and outbox_owed_low for negative priorities), one probe per distinct queue; outbox_released for the counts. Each limit has an order, or the planner
--   would read the table from its start in the hope of meeting a fitting row soon.
WITH RECURSIVE known(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'owed' ORDER BY o.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'owed' AND o.queue > known.queue ORDER BY o.queue LIMIT 1)
  FROM known WHERE known.queue IS NOT NULL
)
SELECT k.queue, (
    SELECT count(*) FROM (
      SELECT 1 FROM {schema}.outbox AS r WHERE r.phase = 'released' AND r.queue = k.queue
      ORDER BY r.released_at LIMIT CAST(:runway AS integer)
    ) AS out
  ) AS released
FROM known AS k
WHERE k.queue IS NOT NULL AND coalesce((
  SELECT true FROM {schema}.outbox AS d
  WHERE d.phase = 'owed' AND d.queue = k.queue
    AND d.order_key <= (SELECT {schema}.clock()) AND d.due_at <= (SELECT {schema}.clock())
  ORDER BY d.order_key LIMIT 1
), (
  SELECT true FROM {schema}.outbox AS d
  WHERE d.phase = 'owed' AND d.queue = k.queue AND d.order_key > d.due_at AND d.due_at <= (SELECT {schema}.clock())
  ORDER BY d.order_key LIMIT 1
))
