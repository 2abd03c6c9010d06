-- Purpose: end attempts so that their jobs run again later, if their tokens still own them. A job whose next try could not start before its
--   deadline fails now. What was handed back or throttled uses up no try. Why something was handed back stands in its attempt alone: it is no error
--   of the job.
-- Transition: retry: running -> ready | failed; hand_back: running -> ready (phase leased -> owed, or outbox row deleted)
-- Parameters: job_ids, tokens, delays_s, outcomes (retried | handed_back), error_classes, error_codes, error_messages, tracebacks; started_s
--   (seconds from the claim to the start), reached, effects (names, U+001F between them): NULL where nothing is known, or short of the others
-- Locks: outbox rows in id order, waiting; then their job rows. Index: both primary keys.
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:delays_s AS float8[]), CAST(:outcomes AS text[]),
    CAST(:error_classes AS text[]), CAST(:error_codes AS text[]), CAST(:error_messages AS text[]), CAST(:tracebacks AS text[]),
    CAST(:started_s AS float8[]), CAST(:reached AS text[]), CAST(:effects AS text[]))
    AS e(job_id, token, delay_s, outcome, error_class, error_code, error_message, traceback, started_s, reached, touched)
), held AS MATERIALIZED (
  SELECT e.*, o.released_at, o.deadline_at, o.progress
  FROM {schema}.outbox AS o JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR UPDATE OF o
), mine AS MATERIALIZED (
  SELECT h.*, CASE WHEN h.outcome <> 'handed_back' THEN h.error_class END AS job_class, n.now, n.now + make_interval(secs => h.delay_s) AS next_at, h.outcome = 'handed_back' OR h.error_class = 'throttled' AS free,
    coalesce(h.outcome = 'retried' AND n.now + make_interval(secs => h.delay_s) >= h.deadline_at, false) AS late
  FROM held AS h, (SELECT {schema}.clock() AS now) AS n
), back AS (
  UPDATE {schema}.jobs AS j
  SET state = CASE WHEN m.late THEN 'failed' ELSE 'ready' END, lease_token = NULL, finished_at = CASE WHEN m.late THEN m.now END,
    failed_because = CASE WHEN m.late THEN 'deadline_exceeded' END,
    run_at = CASE WHEN m.late OR m.outcome = 'handed_back' THEN j.run_at ELSE m.next_at END,
    uncharged_attempts = j.uncharged_attempts + CASE WHEN m.free AND NOT m.late THEN 1 ELSE 0 END,
    first_error_class = coalesce(j.first_error_class, m.job_class),
    first_error_code = CASE WHEN j.first_error_class IS NULL AND m.job_class IS NOT NULL THEN m.error_code ELSE j.first_error_code END,
    first_error_message = CASE WHEN j.first_error_class IS NULL AND m.job_class IS NOT NULL THEN m.error_message ELSE j.first_error_message END,
    last_error_class = CASE WHEN m.late THEN 'deadline' ELSE coalesce(m.job_class, j.last_error_class) END,
    last_error_code = CASE WHEN m.late THEN 'deadline_exceeded' WHEN m.job_class IS NULL THEN j.last_error_code ELSE m.error_code END,
    last_error_message = CASE WHEN m.late THEN 'the next try could not start before the deadline; its history holds the last try''s own error'
      WHEN m.job_class IS NULL THEN j.last_error_message ELSE m.error_message END
  FROM mine AS m
  WHERE j.id = m.job_id AND j.state = 'running' AND j.lease_token = m.token
  RETURNING j.id, j.state, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version,
    j.lease_started_at, j.run_at, j.priority, j.failed_because
), given AS MATERIALIZED (
  SELECT array_agg(b.id) AS ids, array_agg(b.run_at) AS due, array_agg(b.run_at - b.priority * interval '1 minute') AS keys
  FROM back AS b WHERE b.state = 'ready'
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT b.id FROM back AS b WHERE b.state = 'failed')) RETURNING o.job_id
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', lease_token = NULL, lease_expires_at = NULL, (due_at, order_key) = (
    -- A retry that waits stands behind what is due, or every look for due work would step over it.
    SELECT g.due[i.place], greatest(o.order_key, g.keys[i.place]) FROM given AS g, array_position(g.ids, o.job_id) AS i(place))
  WHERE o.job_id = ANY (ARRAY(SELECT b.id FROM back AS b WHERE b.state = 'ready'))
  RETURNING o.job_id
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  started_at, ended_at, reached, outcome, failed_because, error_class, error_code, error_message, traceback, effects_touched,
  progress)
SELECT b.id, b.attempt_count, m.token, b.lease_owner, b.lease_host, b.lease_worker_version, b.lease_handler_version, m.released_at,
  b.lease_started_at, CASE WHEN m.started_s IS NOT NULL THEN least(b.lease_started_at + make_interval(secs => m.started_s), m.now) END, m.now, m.reached,
  CASE WHEN m.late THEN 'failed' ELSE m.outcome END, b.failed_because, m.error_class, m.error_code, m.error_message, m.traceback,
  string_to_array(m.touched, E'\x1f'), m.progress
FROM back AS b JOIN mine AS m ON m.job_id = b.id
RETURNING job_id, outcome
