-- Purpose: take back leases that have expired. The attempt is charged; at its maximum the job fails, before it the job is owed at once.
-- Transition: lose_lease: running -> ready | failed (phase leased -> owed, or outbox row deleted)
-- Parameters: batch
-- Locks: outbox rows in id order, SKIP LOCKED: one held by its own completion or job.transaction() is left alone; then their job rows.
-- Index: outbox_leased (all leases of the fleet are looked at: they are few), both primary keys.
WITH expired AS MATERIALIZED (
  SELECT o.job_id, o.lease_token, o.released_at FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(
      -- In the index's own order, so that no plan walks the whole table by id instead. A row without its job is nobody's to recover.
      SELECT l.job_id FROM {schema}.outbox AS l
      WHERE l.phase = 'leased' AND l.lease_expires_at <= (SELECT {schema}.clock())
        AND EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = l.job_id AND j.lease_token = l.lease_token)
      ORDER BY l.queue, l.tenant LIMIT CAST(:batch AS integer)))
    AND o.phase = 'leased' AND o.lease_expires_at <= (SELECT {schema}.clock())
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
  SET phase = 'owed', due_at = r.now, lease_token = NULL, lease_expires_at = NULL, last_error = 'lease expired'
  FROM recovered AS r WHERE o.job_id = r.id AND r.state = 'ready'
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
