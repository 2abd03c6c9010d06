-- Purpose: take back leases that have expired. The attempt is charged; at the maximum of attempts or of age, or past its deadline, the job fails,
--   else it is owed at once.
-- Transition: lose_lease: running -> ready | failed (phase leased -> owed, or outbox row deleted)
-- Parameters: job_ids (those of due_leases; what has not expired is left alone)
-- Locks: outbox rows in id order, SKIP LOCKED: one held by its own completion or job.transaction() is left alone; then their job rows.
-- Index: both primary keys, attempts_pkey, effects_pkey; coalesce keeps the planner from outbox_leases, where it would walk all leases, dead ones
--   included. The verdict is a sub-select of the update's own row: one that was read before might be of an earlier attempt.
WITH expired AS MATERIALIZED (
  SELECT o.job_id, o.lease_token, o.released_at, o.progress FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false) AND o.lease_expires_at <= (SELECT {schema}.clock())
  ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), recovered AS (
  UPDATE {schema}.jobs AS j
  SET (state, finished_at, failed_because, last_error_class, last_error_code, last_error_message) = (
      SELECT CASE WHEN v.because IS NULL THEN 'ready' ELSE 'failed' END,
        CASE WHEN v.because IS NOT NULL THEN n.now END, v.because,
        CASE WHEN v.because = 'deadline_exceeded' THEN 'deadline' ELSE 'lease_lost' END,
        CASE WHEN v.because = 'deadline_exceeded' THEN 'deadline_exceeded' ELSE 'lease_expired' END,
        CASE WHEN v.because = 'deadline_exceeded' THEN 'the deadline passed, and the last try lost its lease'
          ELSE 'the lease expired: the worker died, hung or lost the database' END
      FROM (SELECT CASE
        WHEN j.attempt_count - j.uncharged_attempts >= coalesce(j.max_attempts, 1) THEN 'attempts_exhausted'
        WHEN j.max_age_s <= extract(epoch FROM n.now - coalesce((
          SELECT min(a.claimed_at) FROM {schema}.attempts AS a
          WHERE a.job_id = j.id AND a.number > j.budget_start AND a.outcome <> 'handed_back' AND isfinite(a.claimed_at)),
          CASE WHEN isfinite(j.lease_started_at) THEN j.lease_started_at END, n.now))
          THEN 'age_exhausted'
        WHEN j.deadline_at <= n.now THEN 'deadline_exceeded' END) AS v(because)
    ), lease_token = NULL,
    first_error_class = coalesce(j.first_error_class, 'lease_lost'),
    first_error_code = coalesce(j.first_error_code, 'lease_expired'),
    first_error_message = coalesce(j.first_error_message, 'the lease expired: the worker died, hung or lost the database')
  FROM expired AS e, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = e.job_id AND j.state = 'running' AND j.lease_token = e.lease_token
  RETURNING j.id, j.state, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version,
    j.lease_started_at, j.failed_because, n.now, e.lease_token AS token, e.released_at, e.progress
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', due_at = (SELECT max(r.now) FROM recovered AS r), lease_token = NULL, lease_expires_at = NULL, last_error = 'lease expired'
  WHERE o.job_id = ANY (ARRAY(SELECT r.id FROM recovered AS r WHERE r.state = 'ready'))
  RETURNING o.job_id
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT r.id FROM recovered AS r WHERE r.state = 'failed')) RETURNING o.job_id
), history AS (
  INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
    ended_at, outcome, failed_because, error_class, error_code, error_message, effects_touched, progress)
  SELECT r.id, r.attempt_count, r.token, r.lease_owner, r.lease_host, r.lease_worker_version, r.lease_handler_version, r.released_at,
    r.lease_started_at, r.now, 'lease_lost', r.failed_because, 'lease_lost', 'lease_expired',
    'the lease expired: the worker died, hung or lost the database',
    (SELECT (array_agg(x.name ORDER BY x.name))[1:100] || CASE WHEN count(*) > 100 THEN ARRAY['and ' || (count(*) - 100) || ' more'] END
      FROM {schema}.effects AS x WHERE x.job_id = r.id AND x.attempt = r.attempt_count), r.progress
  FROM recovered AS r
  -- A number that is taken (a row that was written by hand) must not keep every other lease of the fleet from being recovered.
  ON CONFLICT (job_id, number) DO NOTHING
  RETURNING job_id
)
SELECT r.id AS job_id, r.state, r.attempt_count FROM recovered AS r
