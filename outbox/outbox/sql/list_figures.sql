-- Purpose: read the figures of all queues, and of the tenants with bounds of their own, with how old they are.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the table holds a row per live queue and bounded tenant and is read whole.
SELECT f.queue, f.tenant, f.backlog, f.capped, f.scheduled, f.running, f.oldest_due_s, f.in_per_s, f.out_per_s, f.late_mean_s, f.late_max_s, f.drain_s,
  f.counted_at, CAST(extract(epoch FROM {schema}.clock() - f.counted_at) AS float8) AS age_s
FROM {schema}.queue_figures AS f ORDER BY f.queue, f.tenant
