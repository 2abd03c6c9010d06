-- Purpose: end one attempt in success, if its token still owns it and no effect of its job is pending or uncertain: the fence in front of every effect that `apply` writes after it.
-- Transition: complete: running -> succeeded (outbox row deleted)
-- Parameters: job_id, token; started_s, effects (as in retry.sql); may_owe (as in complete.sql); seq_scans: what enable_seqscan is to be for the rest of the transaction, null leaves it as it is.
-- Locks: the outbox row, waiting; then its job row.
-- Index: the primary keys; coalesce keeps the planner from outbox_leases and effects_open. A kept plan may have been made while the tables were small: whoever
--   keeps it turns sequential scans off in front of it, and seq_scans turns them on again for what follows.
WITH fenced AS (
  DELETE FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND coalesce(o.phase = 'leased', false)
    AND (NOT coalesce(CAST(:may_owe AS boolean), true) OR (SELECT true FROM {schema}.effects AS x
      WHERE x.job_id = o.job_id AND coalesce(x.state IN ('pending', 'uncertain'), false) LIMIT 1) IS NULL)
  RETURNING o.job_id, o.lease_token, o.released_at
), finished AS (
  UPDATE {schema}.jobs AS j SET state = 'succeeded', lease_token = NULL, finished_at = {schema}.clock()
  FROM fenced AS f
  WHERE j.id = f.job_id AND j.state = 'running' AND j.lease_token = f.lease_token
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at,
    j.finished_at, f.lease_token AS token, f.released_at
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  started_at, ended_at, outcome, effects_touched)
SELECT j.id, j.attempt_count, j.token, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.released_at,
  j.lease_started_at, CASE WHEN CAST(:started_s AS float8) IS NOT NULL THEN least(j.lease_started_at + make_interval(secs => CAST(:started_s AS float8)), j.finished_at) END, j.finished_at,
  'succeeded', string_to_array(CAST(:effects AS text), E'\x1f')
FROM finished AS j
RETURNING CAST(pg_current_xact_id() AS text) AS transaction_id,
  set_config('enable_seqscan', coalesce(CAST(:seq_scans AS text), current_setting('enable_seqscan')), true) AS seq_scans
