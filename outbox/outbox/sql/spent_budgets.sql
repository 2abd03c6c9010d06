-- Purpose: tell what named jobs have used up of their budgets in ended attempts, and how old they are, each counted from its first claim or from
--   the first one since its last redrive. What was handed back had not begun.
-- Transition: none
-- Parameters: job_ids
-- Locks: none. Index: both primary keys; the attempts of one job stand together.
SELECT j.id AS job_id, h.unknown, h.throttled,
  CAST(extract(epoch FROM {schema}.clock() - coalesce(h.began, CASE WHEN isfinite(j.lease_started_at) THEN j.lease_started_at END, {schema}.clock())) AS float8) AS age_s
FROM {schema}.jobs AS j CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE a.error_class = 'unknown') AS unknown, count(*) FILTER (WHERE a.error_class = 'throttled') AS throttled,
    min(a.claimed_at) FILTER (WHERE a.outcome <> 'handed_back' AND isfinite(a.claimed_at)) AS began
  FROM {schema}.attempts AS a WHERE a.job_id = j.id AND a.number > j.budget_start
) AS h
WHERE j.id = ANY (CAST(:job_ids AS uuid[]))
