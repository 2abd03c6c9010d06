-- Purpose: settle, on a person's word, an effect whose outcome is unknown, of a job that doesn't run; or give a confirmed one the result that could
--   not be stored, or that a person has left out. Tells what was there before, so that a refusal can say why.
-- Transition: none (effect: pending | uncertain -> confirmed | not_done)
-- Parameters: job_id, name, state (confirmed | not_done), result (JSON text, or NULL), actor, reason, detail (JSON text)
-- Locks: the outbox row, if there is one, waiting; then the job row, so that no redrive and no claim comes in between; then the effect's row.
--   Index: the three primary keys.
WITH held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o WHERE o.job_id = CAST(:job_id AS uuid) FOR UPDATE
), job AS MATERIALIZED (
  SELECT j.id, j.state FROM {schema}.jobs AS j
  WHERE j.id = CAST(:job_id AS uuid) AND (SELECT count(*) FROM held AS h) >= 0 FOR NO KEY UPDATE
), effect AS MATERIALIZED (
  SELECT e.job_id, e.name, e.state, e.attempt, e.remote_request_id, j.state AS job_state,
    e.state = 'confirmed' AND (e.result_note IS NOT NULL OR (e.settled_by = 'person' AND e.result IS NULL)) AS lacks_result
  FROM job AS j JOIN {schema}.effects AS e ON e.job_id = j.id AND e.name = CAST(:name AS text) FOR UPDATE OF e
), resolved AS (
  UPDATE {schema}.effects AS e
  SET result = CAST(CAST(:result AS text) AS jsonb), result_note = NULL, state = CAST(:state AS text), updated_at = n.now,
    settled_by = CASE WHEN CAST(:state AS text) = 'confirmed' THEN coalesce(e.settled_by, 'person') END,
    confirmed_at = CASE WHEN CAST(:state AS text) = 'confirmed' THEN coalesce(e.confirmed_at, n.now) END
  FROM effect AS f, (SELECT {schema}.clock() AS now) AS n
  WHERE e.job_id = f.job_id AND e.name = f.name AND f.job_state <> 'running' AND (
    f.state IN ('pending', 'uncertain')
    OR f.lacks_result AND CAST(:state AS text) = 'confirmed' AND CAST(:result AS text) IS NOT NULL)
  RETURNING e.job_id, n.now
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT r.now, CAST(:actor AS text), 'effect.resolve', r.job_id::text, CAST(:reason AS text),
    CAST(CAST(:detail AS text) AS jsonb) || jsonb_build_object('effect', f.name, 'as', CAST(:state AS text), 'was', f.state, 'attempt', f.attempt,
      'remote_request_id', f.remote_request_id)
  FROM resolved AS r CROSS JOIN effect AS f
  RETURNING id
)
SELECT j.state AS job_state, f.state AS effect_state, f.lacks_result, EXISTS (SELECT 1 FROM resolved) AS resolved, EXISTS (SELECT 1 FROM audited) AS audited
FROM job AS j LEFT JOIN effect AS f ON true
