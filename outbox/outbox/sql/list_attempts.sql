-- Purpose: read the newest ended attempts of one job, or the newest of those before a number; oldest first.
-- Transition: none
-- Parameters: job_id, before (a number, or NULL), batch
-- Locks: none. Index: attempts_pkey, backwards.
SELECT a.number, a.worker, a.host, a.worker_version, a.handler_version, a.hinted_at, a.claimed_at, a.started_at, a.ended_at,
  CASE a.outcome WHEN 'succeeded' THEN 'done' ELSE a.reached END AS reached, a.outcome, a.failed_because, a.error_class, a.error_code,
  a.error_message, a.traceback, a.effects_touched, a.progress
FROM (
  SELECT k.* FROM {schema}.attempts AS k
  WHERE k.job_id = CAST(:job_id AS uuid) AND (CAST(:before AS integer) IS NULL OR k.number < CAST(:before AS integer))
  ORDER BY k.job_id DESC, k.number DESC LIMIT CAST(:batch AS integer)
) AS a ORDER BY a.number
