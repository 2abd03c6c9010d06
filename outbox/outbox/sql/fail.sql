-- Purpose: end attempts and their jobs in failure, if their tokens still own them; the jobs wait for a person from now on.
-- Transition: fail: running -> failed (outbox row deleted)
-- Parameters: job_ids, tokens, error_classes, error_codes, error_messages, tracebacks (all NULL for an attempt without an error of its own:
--   the job keeps its last one), reasons (why there is no further try); started_s, reached,
--   effects (as in retry.sql)
-- Locks: outbox rows in id order, waiting; then their job rows. Index: both primary keys.
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:error_classes AS text[]), CAST(:error_codes AS text[]),
    CAST(:error_messages AS text[]), CAST(:tracebacks AS text[]), CAST(:reasons AS text[]), CAST(:started_s AS float8[]),
    CAST(:reached AS text[]), CAST(:effects AS text[]))
    AS e(job_id, token, error_class, error_code, error_message, traceback, because, started_s, reached, touched)
), mine AS MATERIALIZED (
  SELECT e.*, o.released_at, o.progress
  FROM {schema}.outbox AS o JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR UPDATE OF o
), fenced AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM mine AS m)) RETURNING o.job_id
), failed AS (
  UPDATE {schema}.jobs AS j
  SET state = 'failed', lease_token = NULL, finished_at = n.now, failed_because = m.because,
    first_error_class = coalesce(j.first_error_class, m.error_class),
    first_error_code = CASE WHEN j.first_error_class IS NULL THEN m.error_code ELSE j.first_error_code END,
    first_error_message = CASE WHEN j.first_error_class IS NULL THEN m.error_message ELSE j.first_error_message END,
    last_error_class = coalesce(m.error_class, j.last_error_class),
    last_error_code = CASE WHEN m.error_class IS NULL THEN j.last_error_code ELSE m.error_code END,
    last_error_message = CASE WHEN m.error_class IS NULL THEN j.last_error_message ELSE m.error_message END
  FROM mine AS m JOIN fenced AS f ON f.job_id = m.job_id, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = m.job_id AND j.state = 'running' AND j.lease_token = m.token
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at, n.now
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  started_at, ended_at, reached, outcome, failed_because, error_class, error_code, error_message, traceback, effects_touched,
  progress)
SELECT b.id, b.attempt_count, m.token, b.lease_owner, b.lease_host, b.lease_worker_version, b.lease_handler_version, m.released_at,
  b.lease_started_at, CASE WHEN m.started_s IS NOT NULL THEN least(b.lease_started_at + make_interval(secs => m.started_s), b.now) END, b.now, m.reached, 'failed', m.because,
  m.error_class, m.error_code, m.error_message, m.traceback, string_to_array(m.touched, E'\x1f'), m.progress
FROM failed AS b JOIN mine AS m ON m.job_id = b.id
RETURNING job_id
