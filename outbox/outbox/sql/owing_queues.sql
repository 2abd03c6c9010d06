-- Purpose: name every queue that owes hints.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: outbox_owed, one probe per distinct queue.
WITH RECURSIVE known(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'owed' ORDER BY o.queue, o.order_key, o.job_id LIMIT 1)
  UNION ALL
  SELECT m.queue FROM known AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue > k.queue ORDER BY o.queue, o.order_key, o.job_id LIMIT 1
  ) AS m
)
SELECT k.queue FROM known AS k
