-- Purpose: read what one process shows of the tables for all: a row for each value, with the metric's name and its labels in the order of telemetry/contract.py.
-- Transition: none
-- Parameters: schema (its name), fresh_s (figures of queues that are older say nothing), live_s (who was seen within it lives), most (no count goes beyond it)
-- Locks: none. Index: dead_letters_open, effects_open and schedules_due, each no further than the limit; redrive_operations_due; outbox_released and jobs_pkey, five rows of
--   a queue; the rest are tables of a row per queue, process or pause, and views of the server's state, of which a role without pg_read_all_stats sees its own sessions only.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), shut AS MATERIALIZED (
  SELECT {paused_queues}, count(*) AS pauses
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), figures AS MATERIALIZED (
  SELECT f.*, z.everything OR f.queue = ANY (z.queues) AS paused
  FROM {schema}.queue_figures AS f CROSS JOIN now AS n CROSS JOIN shut AS z
  WHERE f.tenant = '' AND f.counted_at > n.instant - make_interval(secs => CAST(:fresh_s AS float8))
), unclaimed AS MATERIALIZED (
  -- Those released longest ago, by when their jobs were due: a hint that goes out again begins anew, its job does not.
  SELECT f.queue, CAST(extract(epoch FROM max(n.instant - j.run_at)) AS float8) AS due_s
  FROM figures AS f CROSS JOIN now AS n CROSS JOIN LATERAL (
    SELECT o.job_id FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue = f.queue ORDER BY o.released_at LIMIT 5
  ) AS o
  JOIN {schema}.jobs AS j ON j.id = o.job_id
  GROUP BY f.queue
), letters AS MATERIALIZED (
  SELECT d.queue, d.kind FROM {schema}.dead_letters AS d WHERE d.discarded_at IS NULL ORDER BY d.failed_at DESC, d.job_id DESC
  LIMIT CAST(:most AS integer)
), unknown AS MATERIALIZED (
  SELECT e.state FROM {schema}.effects AS e WHERE e.state IN ('pending', 'uncertain') ORDER BY e.created_at LIMIT CAST(:most AS integer)
), ours AS MATERIALIZED (
  SELECT c.relname, pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
  WHERE s.nspname = CAST(:schema AS text) AND c.relname IN ('jobs', 'outbox', 'attempts', 'effects')
)
SELECT m.metric, m.labels, CAST(m.value AS float8) AS value
FROM figures AS f LEFT JOIN unclaimed AS u ON u.queue = f.queue CROSS JOIN LATERAL (VALUES
  ('outbox.queue.ready', ARRAY[f.queue], CAST(f.backlog AS float8)),
  ('outbox.queue.scheduled', ARRAY[f.queue], f.scheduled),
  ('outbox.queue.running', ARRAY[f.queue], f.running),
  ('outbox.queue.oldest.due', ARRAY[f.queue], CASE WHEN f.paused THEN 0 ELSE greatest(f.oldest_due_s, u.due_s, 0) END),
  ('outbox.queue.submitted.rate', ARRAY[f.queue], f.in_per_s),
  ('outbox.queue.ended.rate', ARRAY[f.queue], coalesce(f.out_per_s, 0)),
  ('outbox.queue.lateness.mean', ARRAY[f.queue], f.late_mean_s),
  ('outbox.queue.lateness.most', ARRAY[f.queue], f.late_max_s),
  ('outbox.queue.drain', ARRAY[f.queue], f.drain_s)
) AS m(metric, labels, value)
WHERE m.value IS NOT NULL
UNION ALL
SELECT 'outbox.pauses', ARRAY[]::text[], z.pauses FROM shut AS z
UNION ALL
SELECT 'outbox.dead_letters', ARRAY[l.queue, l.kind], count(*) FROM letters AS l GROUP BY l.queue, l.kind
UNION ALL
SELECT 'outbox.effects.open', ARRAY[s.state], count(e.state)
FROM (VALUES ('pending'), ('uncertain')) AS s(state) LEFT JOIN unknown AS e ON e.state = s.state GROUP BY s.state
UNION ALL
SELECT 'outbox.schedules.lag', ARRAY[]::text[], coalesce(extract(epoch FROM max(n.instant - greatest(s.wake_at, s.updated_at))), 0)
FROM now AS n LEFT JOIN (
  SELECT s.wake_at, s.updated_at FROM {schema}.schedules AS s CROSS JOIN now AS n
  WHERE NOT s.paused AND s.disabled_at IS NULL AND s.wake_at <= n.instant ORDER BY s.wake_at, s.name LIMIT CAST(:most AS integer)
) AS s ON s.updated_at <= n.instant
UNION ALL
SELECT 'outbox.redrives.left', ARRAY[]::text[], coalesce(sum(r.total - r.redriven - r.refused), 0)
FROM {schema}.redrive_operations AS r WHERE r.state = 'running'
UNION ALL
SELECT 'outbox.processes', ARRAY[w.role], count(p.role)
FROM (VALUES ('relay'), ('consumer')) AS w(role) CROSS JOIN now AS n
LEFT JOIN {schema}.processes AS p ON p.role = w.role AND p.seen_at > n.instant - make_interval(secs => CAST(:live_s AS float8))
GROUP BY w.role
UNION ALL
SELECT 'outbox.database.oldest.transaction', ARRAY[]::text[],
  coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - min(s.xact_start)), 0)
FROM pg_catalog.pg_stat_activity AS s
WHERE (s.backend_xmin IS NOT NULL OR s.backend_xid IS NOT NULL) AND s.pid <> pg_catalog.pg_backend_pid() AND s.backend_type = 'client backend'
UNION ALL
SELECT 'outbox.database.dead_rows', ARRAY[CAST(o.relname AS text)], o.dead FROM ours AS o
UNION ALL
SELECT 'outbox.database.clock.ahead', ARRAY[]::text[], extract(epoch FROM pg_catalog.clock_timestamp())
