-- Purpose: read the figures of all queues, and of the tenants with bounds of their own, with how old they are.
-- Transition: none
-- Parameters: live_s (how long ago a consumer's sign may be)
-- Locks: none. Index: none: the tables hold a row per live queue and bounded tenant, and one per process, and are read whole.
SELECT f.queue, f.tenant, f.backlog, f.capped, f.scheduled, f.running, f.oldest_due_s, {line_age} AS line_age_s,
  f.in_per_s, f.out_per_s, f.late_mean_s, f.late_max_s, f.drain_s, f.counted_at, CAST(extract(epoch FROM {schema}.clock() - f.counted_at) AS float8) AS age_s,
  (SELECT CAST(extract(epoch FROM {schema}.clock() - min(p.seen_at)) AS float8) FROM {schema}.processes AS p
    WHERE p.ended_per_s -> f.queue IS NOT NULL AND p.seen_at > {schema}.clock() - make_interval(secs => CAST(:live_s AS float8))) AS out_age_s
FROM {schema}.queue_figures AS f ORDER BY f.queue, f.tenant
