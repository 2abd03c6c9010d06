-- Purpose: find the leases that would have ended by now if nobody had extended them, and tell which of them have ended.
-- Transition: none
-- Parameters: queues (those to look at, or NULL: all that have leases, which are told), since (where the look begins, or NULL), batch
-- Locks: none. Index: outbox_leases, in its own order and from `since` on in each queue, so that no look starts at dead history. The queues are found by
--   one probe for each, from the end where the leases are that were taken last: in a busy queue nothing dead stands before these. A row without its job
--   is nobody's to recover. There is always a row, for the instant of the look.
WITH RECURSIVE leasing(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND CAST(:queues AS text[]) IS NULL ORDER BY o.queue DESC, o.due_at DESC LIMIT 1)
  UNION ALL
  SELECT m.queue FROM leasing AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue < k.queue ORDER BY o.queue DESC, o.due_at DESC LIMIT 1
  ) AS m
), looked_at(queue) AS MATERIALIZED (
  SELECT k.queue FROM leasing AS k UNION ALL SELECT unnest(CAST(:queues AS text[]))
)
SELECT n.instant, CASE WHEN CAST(:queues AS text[]) IS NULL THEN ARRAY(SELECT k.queue FROM looked_at AS k) END AS queues,
  l.job_id, l.due_at, l.lease_expires_at <= n.instant AS expired
FROM (SELECT {schema}.clock() AS instant) AS n
LEFT JOIN LATERAL (
  SELECT d.job_id, d.due_at, d.lease_expires_at FROM looked_at AS k CROSS JOIN LATERAL (
    SELECT o.job_id, o.due_at, o.lease_expires_at FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue = k.queue
      AND o.due_at >= coalesce(CAST(:since AS timestamptz), '-infinity') AND o.due_at <= n.instant
      AND EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = o.job_id AND j.lease_token = o.lease_token)
    ORDER BY o.due_at LIMIT CAST(:batch AS integer)
  ) AS d
  ORDER BY d.due_at LIMIT CAST(:batch AS integer)
) AS l ON true
