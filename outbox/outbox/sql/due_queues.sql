-- Purpose: find every queue that owes hints and is not paused: whether one is due, where its line begins, when the next one comes due, and how many hints
--   are out and unclaimed. A full look: on its way it steps over all that an old snapshot elsewhere still keeps from being cleaned away.
-- Transition: none
-- Parameters: runway (no count goes beyond it, unless the queue has a longer one), queues and released_since (hints of these queues that went out earlier are not counted)
-- Locks: none. Index: outbox_owed, one probe per distinct queue (outbox_owed_low for negative priorities); outbox_released for the counts.
--   Each limit has an order, or the planner would read the table from its start in the hope of meeting a fitting row soon.
WITH RECURSIVE now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), shut AS MATERIALIZED (
  SELECT {paused_queues}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), known(queue, owed_since, owed_id) AS (
  (SELECT o.queue, o.order_key, o.job_id FROM {schema}.outbox AS o WHERE o.phase = 'owed' ORDER BY o.queue, o.order_key, o.job_id LIMIT 1)
  UNION ALL
  SELECT m.queue, m.order_key, m.job_id FROM known AS k CROSS JOIN LATERAL (
    SELECT o.queue, o.order_key, o.job_id FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue > k.queue ORDER BY o.queue, o.order_key, o.job_id LIMIT 1
  ) AS m
)
SELECT k.queue, n.instant, f.first_due, f.first_id, l.low_due, x.next_at, r.released, r.first_released,
  coalesce(q.governed, false) AS governed, q.runway
FROM known AS k CROSS JOIN now AS n
LEFT JOIN unnest(CAST(:queues AS text[]), CAST(:released_since AS timestamptz[])) AS s(queue, released_since) ON s.queue = k.queue
{look_at_queue}
WHERE NOT (SELECT p.everything FROM shut AS p) AND k.queue <> ALL (CAST((SELECT p.queues FROM shut AS p) AS text[]))
