-- Purpose: look at named queues again, as far as they are not paused, from where their lines were last seen to begin: what due_queues tells, without the way there.
-- Transition: none
-- Parameters: runway (no count goes beyond it, unless the queue has a longer one); queues, owed_since with owed_id, and released_since (per queue, where its rows of each phase begin)
-- Locks: none. Index: outbox_owed, outbox_owed_low and outbox_released from the given places on, so that no look starts at dead history.
--   A row below its place (a late commit, a retry, a high priority) is found by the next due_queues, which never waits long.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), shut AS MATERIALIZED (
  SELECT {paused_queues}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
)
SELECT k.queue, n.instant, f.first_due, f.first_id, l.low_due, x.next_at, r.released, r.first_released,
  coalesce(q.governed, false) AS governed, q.runway
FROM unnest(CAST(:queues AS text[]), CAST(:owed_since AS timestamptz[]), CAST(:owed_id AS uuid[]), CAST(:released_since AS timestamptz[]))
  AS k(queue, owed_since, owed_id, released_since) CROSS JOIN now AS n CROSS JOIN LATERAL (SELECT k.released_since) AS s
{look_at_queue}
WHERE NOT (SELECT p.everything FROM shut AS p) AND k.queue <> ALL (CAST((SELECT p.queues FROM shut AS p) AS text[]))
