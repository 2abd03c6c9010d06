-- Purpose: give back attempts whose jobs are sealed under a key that this worker doesn't have, if their tokens still own them. The jobs are offered
--   again soon; from then on claim and refuse know the key, and nobody without it claims them.
-- Transition: hand_back: running -> ready (phase leased -> owed)
-- Parameters: job_ids, tokens, key_ids (one for each), pause_s
-- Locks: outbox rows in id order, waiting; then their job rows. Index: both primary keys.
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:key_ids AS text[])) AS e(job_id, token, key_id)
), mine AS MATERIALIZED (
  SELECT o.job_id, o.released_at, e.token, e.key_id
  FROM {schema}.outbox AS o JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR UPDATE OF o
), back AS (
  UPDATE {schema}.jobs AS j
  SET state = 'ready', lease_token = NULL, uncharged_attempts = j.uncharged_attempts + 1
  FROM mine AS m
  WHERE j.id = m.job_id AND j.state = 'running' AND j.lease_token = m.token
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', lease_token = NULL, lease_expires_at = NULL, last_error = 'unknown key',
    needs_key = (SELECT m.key_id FROM mine AS m WHERE m.job_id = o.job_id),
    due_at = n.now + make_interval(secs => CAST(:pause_s AS float8)), order_key = greatest(o.order_key, n.now)
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE o.job_id = ANY (ARRAY(SELECT b.id FROM back AS b))
  RETURNING o.job_id
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  ended_at, outcome, error_class, error_code, error_message)
SELECT b.id, b.attempt_count, m.token, b.lease_owner, b.lease_host, b.lease_worker_version, b.lease_handler_version, m.released_at,
  b.lease_started_at, {schema}.clock(), 'handed_back', 'parked', 'unknown_key', 'this worker has no key ' || m.key_id
FROM back AS b JOIN mine AS m ON m.job_id = b.id
RETURNING job_id
