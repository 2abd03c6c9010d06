-- Purpose: take back leases that have expired. The attempt is charged; at its maximum the job fails, before it the job is owed at once.
-- Transition: lose_lease: running -> ready | failed (phase leased -> owed, or outbox row deleted)
-- Parameters: job_ids (those of due_leases; what has not expired is left alone)
-- Locks: outbox rows in id order, SKIP LOCKED: one held by its own completion or job.transaction() is left alone; then their job rows.
-- Index: both primary keys; coalesce keeps the planner from outbox_leased, where it would walk all leases, dead ones included.
WITH expired AS MATERIALIZED (
  SELECT o.job_id, o.lease_token, o.released_at FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false) AND o.lease_expires_at <= (SELECT {schema}.clock())
  ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), recovered AS (
  UPDATE {schema}.jobs AS j
  SET state = CASE WHEN j.attempt_count - j.uncharged_attempts >= coalesce(j.max_attempts, 1) THEN 'failed' ELSE 'ready' END,
    lease_token = NULL,
    finished_at = CASE WHEN j.attempt_count - j.uncharged_attempts >= coalesce(j.max_attempts, 1) THEN n.now END,
    first_error_class = coalesce(j.first_error_class, 'lease_lost'),
    first_error_code = coalesce(j.first_error_code, 'lease_expired'),
    first_error_message = coalesce(j.first_error_message, 'the lease expired: the worker died, hung or lost the database'),
    last_error_class = 'lease_lost', last_error_code = 'lease_expired',
    last_error_message = 'the lease expired: the worker died, hung or lost the database'
  FROM expired AS e, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = e.job_id AND j.state = 'running' AND j.lease_token = e.lease_token
  RETURNING j.id, j.state, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version,
    j.lease_started_at, n.now, e.lease_token AS token, e.released_at
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', due_at = (SELECT max(r.now) FROM recovered AS r), lease_token = NULL, lease_expires_at = NULL, last_error = 'lease expired'
  WHERE o.job_id = ANY (ARRAY(SELECT r.id FROM recovered AS r WHERE r.state = 'ready'))
  RETURNING o.job_id
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT r.id FROM recovered AS r WHERE r.state = 'failed')) RETURNING o.job_id
), history AS (
  INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
    ended_at, outcome, error_class, error_code, error_message)
  SELECT r.id, r.attempt_count, r.token, r.lease_owner, r.lease_host, r.lease_worker_version, r.lease_handler_version, r.released_at,
    r.lease_started_at, r.now, 'lease_lost', 'lease_lost', 'lease_expired', 'the lease expired: the worker died, hung or lost the database'
  FROM recovered AS r
  -- A number that is taken (a row that was written by hand) must not keep every other lease of the fleet from being recovered.
  ON CONFLICT (job_id, number) DO NOTHING
  RETURNING job_id
)
SELECT r.id AS job_id, r.state, r.attempt_count FROM recovered AS r
