-- Purpose: end a job that has not ended, with who and why. A waiting job never runs; a running one loses its lease, so that whichever of
--   cancel and completion commits first wins and the other changes nothing.
-- Transition: cancel: ready | running -> cancelled (outbox row deleted)
-- Parameters: job_id, actor, reason
-- Locks: the outbox row, waiting; then the job row. The clock is read behind the lock: a claim that was waited for came first. Index: both primary keys.
WITH held AS MATERIALIZED (
  SELECT o.job_id, o.lease_token, o.released_at FROM {schema}.outbox AS o WHERE o.job_id = CAST(:job_id AS uuid) FOR UPDATE
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) RETURNING o.job_id, o.lease_token, o.released_at, {schema}.clock() AS now
), cancelled AS (
  UPDATE {schema}.jobs AS j
  SET state = 'cancelled', lease_token = NULL, finished_at = g.now,
    cancel_requested_at = g.now, cancel_requested_by = CAST(:actor AS text), cancel_reason = CAST(:reason AS text)
  FROM gone AS g
  WHERE j.id = g.job_id AND j.state IN ('ready', 'running')
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at, g.now
), history AS (
  INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
    ended_at, outcome, error_class, error_code, error_message)
  SELECT c.id, c.attempt_count, g.lease_token, c.lease_owner, c.lease_host, c.lease_worker_version, c.lease_handler_version, g.released_at,
    c.lease_started_at, c.now, 'cancelled', 'cancelled', 'cancelled', CAST(:reason AS text)
  FROM cancelled AS c JOIN gone AS g ON g.job_id = c.id WHERE g.lease_token IS NOT NULL
  RETURNING job_id
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason)
  SELECT c.now, CAST(:actor AS text), 'job.cancel', c.id::text, CAST(:reason AS text) FROM cancelled AS c
  RETURNING id
)
SELECT c.id AS job_id FROM cancelled AS c
