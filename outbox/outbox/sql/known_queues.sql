-- Purpose: name the queues of which anything is known: jobs that have not ended, consumers, limits, bounds, pauses, schedules, figures of late.
-- Transition: none
-- Parameters: name (of no use here), most (no more names are read of each source)
-- Locks: none. Index: outbox_owed, outbox_released and outbox_leases, one probe per distinct queue; the other tables are small and read whole.
WITH RECURSIVE owed(queue, place) AS (
  (SELECT o.queue, 1 FROM {schema}.outbox AS o WHERE o.phase = 'owed' ORDER BY o.queue, o.order_key, o.job_id LIMIT 1)
  UNION ALL
  SELECT m.queue, k.place + 1 FROM owed AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'owed' AND o.queue > k.queue ORDER BY o.queue, o.order_key, o.job_id LIMIT 1
  ) AS m WHERE k.place < CAST(:most AS integer)
), released(queue, place) AS (
  (SELECT o.queue, 1 FROM {schema}.outbox AS o WHERE o.phase = 'released' ORDER BY o.queue, o.released_at LIMIT 1)
  UNION ALL
  SELECT m.queue, k.place + 1 FROM released AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue > k.queue ORDER BY o.queue, o.released_at LIMIT 1
  ) AS m WHERE k.place < CAST(:most AS integer)
), leased(queue, place) AS (
  (SELECT o.queue, 1 FROM {schema}.outbox AS o WHERE o.phase = 'leased' ORDER BY o.queue, o.due_at LIMIT 1)
  UNION ALL
  SELECT m.queue, k.place + 1 FROM leased AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'leased' AND o.queue > k.queue ORDER BY o.queue, o.due_at LIMIT 1
  ) AS m WHERE k.place < CAST(:most AS integer)
)
SELECT n.name FROM (
  SELECT k.queue AS name FROM owed AS k UNION SELECT k.queue FROM released AS k UNION SELECT k.queue FROM leased AS k
  UNION SELECT w.queue FROM {schema}.processes AS p CROSS JOIN LATERAL unnest(p.works_for) AS w(queue)
  UNION SELECT q.name FROM {schema}.queue_limits AS q UNION SELECT b.queue FROM {schema}.queue_bounds AS b
  UNION SELECT u.name FROM {schema}.pauses AS u WHERE u.scope = 'queue' UNION SELECT s.queue FROM {schema}.schedules AS s
  UNION SELECT f.queue FROM {schema}.queue_figures AS f
) AS n WHERE CAST(:name AS text) IS NOT NULL ORDER BY n.name
