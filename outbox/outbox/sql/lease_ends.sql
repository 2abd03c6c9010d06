-- Purpose: tell how attempts ended whose worker did not end them: for its log, and for the handler that still runs.
-- Transition: none
-- Parameters: job_ids, tokens
-- Locks: none. Index: the primary keys of attempts and jobs.
SELECT a.lease_token AS token, a.outcome, (
    SELECT j.cancel_requested_by FROM {schema}.jobs AS j WHERE j.id = a.job_id AND a.outcome = 'cancelled') AS cancelled_by,
  CASE WHEN isfinite(a.ended_at) THEN CAST(extract(epoch FROM {schema}.clock() - a.ended_at) AS float8) ELSE 0 END AS ago_s
FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[])) AS e(job_id, token)
JOIN {schema}.attempts AS a ON a.job_id = e.job_id AND a.lease_token = e.token
