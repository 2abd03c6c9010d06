-- Purpose: end attempts so that their jobs run again later, if their tokens still own them.
-- Transition: retry, hand_back: running -> ready (phase leased -> owed)
-- Parameters: job_ids, tokens, delays_s, outcomes (retried | handed_back), error_classes, error_codes, error_messages, tracebacks
-- Locks: outbox rows in id order, waiting; then their job rows. Index: both primary keys.
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:delays_s AS float8[]), CAST(:outcomes AS text[]),
    CAST(:error_classes AS text[]), CAST(:error_codes AS text[]), CAST(:error_messages AS text[]), CAST(:tracebacks AS text[]))
    AS e(job_id, token, delay_s, outcome, error_class, error_code, error_message, traceback)
), mine AS MATERIALIZED (
  SELECT o.job_id, o.released_at, e.token, e.delay_s, e.outcome, e.error_class, e.error_code, e.error_message, e.traceback
  FROM {schema}.outbox AS o JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR UPDATE OF o
), back AS (
  UPDATE {schema}.jobs AS j
  SET state = 'ready', lease_token = NULL,
    run_at = CASE WHEN m.outcome = 'handed_back' THEN j.run_at ELSE n.now + make_interval(secs => m.delay_s) END,
    uncharged_attempts = j.uncharged_attempts + CASE WHEN m.outcome = 'handed_back' THEN 1 ELSE 0 END,
    first_error_class = coalesce(j.first_error_class, m.error_class),
    first_error_code = CASE WHEN j.first_error_class IS NULL THEN m.error_code ELSE j.first_error_code END,
    first_error_message = CASE WHEN j.first_error_class IS NULL THEN m.error_message ELSE j.first_error_message END,
    last_error_class = coalesce(m.error_class, j.last_error_class),
    last_error_code = CASE WHEN m.error_class IS NULL THEN j.last_error_code ELSE m.error_code END,
    last_error_message = CASE WHEN m.error_class IS NULL THEN j.last_error_message ELSE m.error_message END
  FROM mine AS m, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = m.job_id AND j.state = 'running' AND j.lease_token = m.token
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at,
    j.run_at, j.priority, n.now
), given AS MATERIALIZED (
  SELECT array_agg(b.id) AS ids, array_agg(b.run_at) AS due, array_agg(b.run_at - b.priority * interval '1 minute') AS keys FROM back AS b
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', lease_token = NULL, lease_expires_at = NULL, (due_at, order_key) = (
    -- A retry that waits stands behind what is due, or every look for due work would step over it.
    SELECT g.due[i.place], greatest(o.order_key, g.keys[i.place]) FROM given AS g, array_position(g.ids, o.job_id) AS i(place))
  WHERE o.job_id = ANY (ARRAY(SELECT b.id FROM back AS b))
  RETURNING o.job_id
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  ended_at, outcome, error_class, error_code, error_message, traceback)
SELECT b.id, b.attempt_count, m.token, b.lease_owner, b.lease_host, b.lease_worker_version, b.lease_handler_version, m.released_at,
  b.lease_started_at, b.now, m.outcome, m.error_class, m.error_code, m.error_message, m.traceback
FROM back AS b JOIN mine AS m ON m.job_id = b.id
RETURNING job_id
