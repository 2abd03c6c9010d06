-- Purpose: read the ended attempts of one job, oldest first.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: attempts_pkey.
SELECT a.number, a.worker, a.host, a.worker_version, a.handler_version, a.hinted_at, a.claimed_at, a.started_at, a.ended_at,
  CASE a.outcome WHEN 'succeeded' THEN 'done' ELSE a.reached END AS reached, a.outcome, a.failed_because, a.error_class, a.error_code,
  a.error_message, a.traceback, a.effects_touched, a.progress
FROM {schema}.attempts AS a WHERE a.job_id = CAST(:job_id AS uuid) ORDER BY a.number
