-- Purpose: look at named queues again, as far as they are not paused, from where their lines were last seen to begin: what due_queues tells, without the way there.
-- Transition: none
-- Parameters: runway (no count goes beyond it); queues, owed_since with owed_id, and released_since (per queue, where its rows of each phase begin)
-- Locks: none. Index: outbox_owed, outbox_owed_low and outbox_released from the given places on, so that no look starts at dead history.
--   A row below its place (a late commit, a retry, a high priority) is found by the next due_queues, which never waits long.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), shut AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything'), false) AS everything,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'queue'), '{}') AS queues
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
)
SELECT k.queue, n.instant, f.first_due, f.first_id, l.low_due, x.next_at, r.released, r.first_released,
  coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = k.queue), false) AS governed
FROM unnest(CAST(:queues AS text[]), CAST(:owed_since AS timestamptz[]), CAST(:owed_id AS uuid[]), CAST(:released_since AS timestamptz[]))
  AS k(queue, owed_since, owed_id, released_since) CROSS JOIN now AS n
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
    WHERE h.phase = 'released' AND h.queue = k.queue AND h.released_at >= coalesce(k.released_since, '-infinity')
    ORDER BY h.released_at LIMIT CAST(:runway AS integer)
  ) AS o) AS r
WHERE NOT (SELECT p.everything FROM shut AS p) AND k.queue <> ALL (CAST((SELECT p.queues FROM shut AS p) AS text[]))
