-- Purpose: read what one process shows of the tables for all: a row for each value, with the metric's name and its labels in the order of telemetry/contract.py.
-- Transition: none
-- Parameters: schema (its name), fresh_s (figures of queues that are older say nothing), live_s (who was seen within it lives), most (no count goes beyond it),
--   queues and sample (the kinds are looked at of so many queues, the largest, in so many rows of all), lately_s (rates are those of so many seconds),
--   aside_at (the place out of the line)
-- Locks: none. Index: dead_letters_open, effects_open, schedules_due and audit_pkey, each no further than the limit; redrive_operations_due; outbox_released,
--   outbox_owed and outbox_leases, of a queue no further than its part of the sample, and jobs_pkey for each of these; the rest are tables of a
--   row per queue, process or pause, and views of the server's state, of which a role without pg_read_all_stats sees its own sessions only.
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
  {unclaimed_of}
), put_off AS MATERIALIZED (
  {put_off_of}
), bounded AS MATERIALIZED (
  SELECT f.queue, max(greatest(CAST(f.backlog AS float8) / b.max_backlog, {line_age} / b.max_oldest_s)) AS part
  FROM {schema}.queue_bounds AS b JOIN {schema}.queue_figures AS f ON f.queue = b.queue AND f.tenant = b.tenant
  CROSS JOIN now AS n WHERE f.counted_at > n.instant - make_interval(secs => CAST(:fresh_s AS float8))
  GROUP BY f.queue
), large AS MATERIALIZED (
  SELECT f.queue, f.backlog, f.scheduled, f.running, greatest(CAST(:sample AS integer) / count(*) OVER (), 20) AS looks
  FROM (SELECT f.* FROM figures AS f ORDER BY f.backlog + f.scheduled + f.running DESC, f.queue LIMIT CAST(:queues AS integer)) AS f
), stages AS MATERIALIZED (
  SELECT q.queue, j.stage, j.kind, count(*) AS jobs, sum(count(*)) OVER (PARTITION BY q.queue, j.stage) AS of_all
  FROM large AS q CROSS JOIN now AS n CROSS JOIN LATERAL (
    (SELECT o.job_id, 'ready' AS stage FROM {schema}.outbox AS o
      WHERE o.phase = 'released' AND o.queue = q.queue ORDER BY o.released_at LIMIT q.looks)
    UNION ALL
    (SELECT o.job_id, CASE WHEN o.due_at <= n.instant THEN 'ready' ELSE 'scheduled' END FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = q.queue AND o.order_key <= n.instant ORDER BY o.order_key, o.job_id LIMIT q.looks)
    UNION ALL
    (SELECT o.job_id, CASE WHEN o.due_at <= n.instant THEN 'ready' ELSE 'scheduled' END FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = q.queue AND o.order_key > n.instant AND o.order_key < {key_aside_from}
      ORDER BY o.order_key, o.job_id LIMIT q.looks)
    UNION ALL
    -- What stands aside for its key or a pause is due.
    (SELECT o.job_id, 'ready' FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = q.queue AND o.order_key > {key_aside_from} AND o.order_key <= CAST(:aside_at AS timestamptz)
        AND o.last_error IN ('waits for its key', 'paused') ORDER BY o.order_key, o.job_id LIMIT q.looks)
    UNION ALL
    (SELECT o.job_id, 'running' FROM {schema}.outbox AS o
      WHERE o.phase = 'leased' AND o.queue = q.queue ORDER BY o.due_at LIMIT q.looks)
  ) AS p CROSS JOIN LATERAL (
    SELECT j.kind, CASE WHEN p.stage = 'scheduled' AND j.run_at <= n.instant THEN 'ready' ELSE p.stage END AS stage
    FROM {schema}.jobs AS j WHERE j.id = p.job_id LIMIT 1
  ) AS j
  GROUP BY q.queue, j.stage, j.kind
), letters AS MATERIALIZED (
  SELECT d.queue, d.kind, d.failed_at FROM {schema}.dead_letters AS d WHERE d.discarded_at IS NULL ORDER BY d.failed_at DESC, d.job_id DESC
  LIMIT CAST(:most AS integer)
), unknown AS MATERIALIZED (
  SELECT e.state FROM {schema}.effects AS e WHERE e.state IN ('pending', 'uncertain') ORDER BY e.created_at LIMIT CAST(:most AS integer)
), acts AS MATERIALIZED (
  SELECT a.action, a.at FROM {schema}.audit AS a ORDER BY a.id DESC LIMIT CAST(:most AS integer)
), ours AS MATERIALIZED (
  SELECT c.relname, pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
  WHERE s.nspname = CAST(:schema AS text) AND c.relname IN ('jobs', 'outbox', 'attempts', 'effects')
)
SELECT m.metric, m.labels, CAST(m.value AS float8) AS value
FROM figures AS f LEFT JOIN unclaimed AS u ON u.queue = f.queue LEFT JOIN put_off AS p ON p.queue = f.queue CROSS JOIN LATERAL (VALUES
  ('outbox.queue.ready', ARRAY[f.queue], CAST(f.backlog AS float8)),
  ('outbox.queue.scheduled', ARRAY[f.queue], f.scheduled),
  ('outbox.queue.running', ARRAY[f.queue], f.running),
  ('outbox.queue.oldest.due', ARRAY[f.queue], CASE WHEN f.paused THEN 0 ELSE greatest(f.oldest_due_s, u.due_s, p.due_s, 0) END),
  ('outbox.queue.submitted.rate', ARRAY[f.queue], f.in_per_s),
  ('outbox.queue.ended.rate', ARRAY[f.queue], coalesce(f.out_per_s, 0)),
  ('outbox.queue.lateness.mean', ARRAY[f.queue], f.late_mean_s),
  ('outbox.queue.lateness.most', ARRAY[f.queue], f.late_max_s),
  ('outbox.queue.release.mean', ARRAY[f.queue], f.release_mean_s),
  ('outbox.queue.claim.mean', ARRAY[f.queue], f.claim_mean_s),
  ('outbox.queue.drain', ARRAY[f.queue], f.drain_s)
) AS m(metric, labels, value)
WHERE m.value IS NOT NULL
UNION ALL
SELECT 'outbox.pauses', ARRAY[]::text[], z.pauses FROM shut AS z
UNION ALL
SELECT 'outbox.queue.fill', ARRAY[b.queue], b.part FROM bounded AS b WHERE b.part IS NOT NULL
UNION ALL
-- As many as the queue has, parted as those are that were looked at.
SELECT 'outbox.kind.' || s.stage, ARRAY[s.queue, s.kind],
  round(CASE s.stage WHEN 'ready' THEN q.backlog WHEN 'running' THEN q.running ELSE q.scheduled END * s.jobs / s.of_all)
FROM stages AS s JOIN large AS q ON q.queue = s.queue
UNION ALL
SELECT 'outbox.dead_letters.rate', ARRAY[]::text[], count(*) / CAST(:lately_s AS float8)
FROM letters AS l CROSS JOIN now AS n WHERE l.failed_at > n.instant - make_interval(secs => CAST(:lately_s AS float8))
UNION ALL
SELECT 'outbox.cancelled.rate', ARRAY[]::text[], count(*) / CAST(:lately_s AS float8)
FROM acts AS a CROSS JOIN now AS n WHERE a.action = 'job.cancel' AND a.at > n.instant - make_interval(secs => CAST(:lately_s AS float8))
UNION ALL
SELECT 'outbox.dead_letters', ARRAY[l.queue, l.kind], count(*) FROM letters AS l GROUP BY l.queue, l.kind
UNION ALL
SELECT 'outbox.effects.open', ARRAY[s.state], count(e.state)
FROM (VALUES ('pending'), ('uncertain')) AS s(state) LEFT JOIN unknown AS e ON e.state = s.state GROUP BY s.state
UNION ALL
SELECT 'outbox.schedules.lag', ARRAY[]::text[], coalesce(extract(epoch FROM max(n.instant - greatest(s.due_at, s.updated_at))), 0)
FROM now AS n LEFT JOIN (
  -- One that catches up comes behind whatever is due by now, so that its turn has just become due: what it makes next tells how far it is behind.
  SELECT CASE WHEN s.failed_turns = 0 THEN least(s.wake_at, s.next_at) ELSE s.wake_at END AS due_at, s.updated_at FROM {schema}.schedules AS s CROSS JOIN now AS n
  WHERE NOT s.paused AND s.disabled_at IS NULL AND s.wake_at <= n.instant ORDER BY s.wake_at, s.name LIMIT CAST(:most AS integer)
) AS s ON s.updated_at <= n.instant
UNION ALL
SELECT 'outbox.redrives.left', ARRAY[]::text[], coalesce(sum(r.total - r.redriven - r.refused), 0)
FROM {schema}.redrive_operations AS r WHERE r.state = 'running'
UNION ALL
SELECT 'outbox.redrives.done', ARRAY[]::text[], coalesce(sum(r.redriven + r.refused), 0)
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
SELECT 'outbox.database.clock.ahead', ARRAY[]::text[], extract(epoch FROM {schema}.clock())
