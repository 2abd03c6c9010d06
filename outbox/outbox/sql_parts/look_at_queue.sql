-- Purpose: what a look tells of each queue: where its line begins, whether a job of negative priority is due, when the next one comes, and what is out.
-- Needs: k (queue; owed_since and owed_id: from where on its line is looked at), s (released_since: hints that went out earlier are not counted), n (instant);
--   it makes q (what its row of limits says), f, l, x and r. Index: queue_limits_pkey, outbox_owed, outbox_owed_low, outbox_released. Each limit has an order, or the planner would read the
--   table from its start in the hope of meeting a fitting row soon.
-- Parameters: runway
LEFT JOIN LATERAL (
    SELECT w.governed, w.runway FROM {schema}.queue_limits AS w WHERE w.name = k.queue ORDER BY w.name LIMIT 1
  ) AS q ON true
LEFT JOIN LATERAL (
    SELECT o.order_key AS first_due, o.job_id AS first_id FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = k.queue AND (o.order_key, o.job_id) >= (k.owed_since, k.owed_id) AND o.order_key <= n.instant
      AND o.due_at <= n.instant
    ORDER BY o.order_key, o.job_id LIMIT 1
  ) AS f ON true
CROSS JOIN LATERAL (SELECT (
    SELECT o.due_at FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key > o.due_at AND o.order_key > n.instant AND o.due_at <= n.instant
    ORDER BY o.order_key LIMIT 1
  ) AS low_due) AS l
CROSS JOIN LATERAL (SELECT (
    SELECT o.order_key FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key > n.instant ORDER BY o.order_key LIMIT 1
  ) AS next_at) AS x
CROSS JOIN LATERAL (SELECT count(*) AS released, min(o.released_at) AS first_released FROM (
    SELECT h.released_at FROM {schema}.outbox AS h
    WHERE h.phase = 'released' AND h.queue = k.queue AND h.released_at >= coalesce(s.released_since, '-infinity')
    ORDER BY h.released_at LIMIT greatest(CAST(:runway AS integer), q.runway)
  ) AS o) AS r
