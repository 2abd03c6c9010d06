-- Purpose: keep the figures of a count in the place of the last ones, and say when the next count is due. Runs in the transaction of hold_count.sql.
-- Transition: none
-- Parameters: counted_at, pause_s (until the next count); queues, tenants, backlogs, capped, scheduled, running, oldest_due_s, line_due_since, in_per_s,
--   out_per_s, late_mean_s, late_max_s, drain_s, release_mean_s, claim_mean_s (a row for each queue and tenant)
-- Locks: the count's row, held already; then the figures', which nobody else writes. Index: primary keys; no indexed column changes.
WITH counted AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:queues AS text[]), CAST(:tenants AS text[]), CAST(:backlogs AS integer[]), CAST(:capped AS boolean[]),
    CAST(:scheduled AS integer[]), CAST(:running AS integer[]), CAST(:oldest_due_s AS float8[]), CAST(:line_due_since AS timestamptz[]),
    CAST(:in_per_s AS float8[]),
    CAST(:out_per_s AS float8[]), CAST(:late_mean_s AS float8[]), CAST(:late_max_s AS float8[]), CAST(:drain_s AS float8[]),
    CAST(:release_mean_s AS float8[]), CAST(:claim_mean_s AS float8[]))
    AS c(queue, tenant, backlog, capped, scheduled, running, oldest_due_s, line_due_since, in_per_s, out_per_s, late_mean_s, late_max_s,
      drain_s, release_mean_s, claim_mean_s)
), gone AS (
  DELETE FROM {schema}.queue_figures AS f
  WHERE NOT EXISTS (SELECT 1 FROM counted AS c WHERE c.queue = f.queue AND c.tenant = f.tenant)
), planned AS (
  UPDATE {schema}.queue_count AS q
  SET counted_at = CAST(:counted_at AS timestamptz), next_at = {schema}.clock() + make_interval(secs => CAST(:pause_s AS float8))
  WHERE q.name = 'figures'
)
INSERT INTO {schema}.queue_figures AS f (queue, tenant, backlog, capped, scheduled, running, oldest_due_s, line_due_since, in_per_s, out_per_s,
  late_mean_s, late_max_s, drain_s, release_mean_s, claim_mean_s, counted_at)
SELECT c.queue, c.tenant, c.backlog, c.capped, c.scheduled, c.running, c.oldest_due_s, c.line_due_since, c.in_per_s, c.out_per_s,
  c.late_mean_s, c.late_max_s, c.drain_s,
  c.release_mean_s, c.claim_mean_s, CAST(:counted_at AS timestamptz)
FROM counted AS c
ON CONFLICT (queue, tenant) DO UPDATE SET backlog = excluded.backlog, capped = excluded.capped, scheduled = excluded.scheduled,
  running = excluded.running, oldest_due_s = excluded.oldest_due_s, line_due_since = excluded.line_due_since,
  in_per_s = excluded.in_per_s, out_per_s = excluded.out_per_s,
  late_mean_s = coalesce(excluded.late_mean_s, f.late_mean_s), late_max_s = coalesce(excluded.late_max_s, f.late_max_s),
  release_mean_s = coalesce(excluded.release_mean_s, f.release_mean_s), claim_mean_s = coalesce(excluded.claim_mean_s, f.claim_mean_s),
  drain_s = excluded.drain_s, counted_at = excluded.counted_at
