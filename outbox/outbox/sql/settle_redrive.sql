-- Purpose: note how jobs that a redrive has put back have ended since, and count them.
-- Transition: none
-- Parameters: operation_id, batch
-- Locks: items of an operation that the caller holds. Index: redrive_items_open, redrive_items_job; primary key of jobs.
WITH ended AS MATERIALIZED (
  SELECT i.job_id, j.last_error_code,
    CASE WHEN j.id IS NULL THEN 'gone' WHEN j.budget_start <> i.attempt_count THEN 'redriven_again'
      -- Of a job that was cancelled before it ran and then put back by another redrive, the end is that one's.
      WHEN EXISTS (SELECT 1 FROM {schema}.redrive_items AS n
        WHERE n.job_id = i.job_id AND (n.redriven_at, n.operation_id) > (i.redriven_at, i.operation_id)) THEN 'redriven_again'
      ELSE j.state END AS state
  FROM {schema}.redrive_items AS i LEFT JOIN {schema}.jobs AS j ON j.id = i.job_id
  WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.state = 'redriven'
    AND (j.id IS NULL OR j.budget_start <> i.attempt_count OR j.state IN ('succeeded', 'failed', 'cancelled'))
  ORDER BY i.job_id LIMIT CAST(:batch AS integer)
), settled AS (
  UPDATE {schema}.redrive_items AS i
  SET outcome_code = CASE WHEN e.state = 'failed' THEN e.last_error_code END, state = e.state
  FROM ended AS e
  WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.job_id = e.job_id
  RETURNING i.state, i.canary, i.state = 'failed' AND i.outcome_code IS NOT DISTINCT FROM i.code AS same_code
)
SELECT count(*) FILTER (WHERE s.state = 'succeeded') AS succeeded, count(*) FILTER (WHERE s.state = 'failed') AS failed,
  count(*) FILTER (WHERE s.state NOT IN ('succeeded', 'failed')) AS otherwise, count(*) FILTER (WHERE s.canary) AS canaries,
  count(*) FILTER (WHERE s.canary AND s.state IN ('succeeded', 'failed')) AS canaries_done,
  count(*) FILTER (WHERE s.canary AND s.same_code) AS canaries_as_before
FROM settled AS s
