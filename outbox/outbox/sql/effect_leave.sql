-- Purpose: record why an effect is not confirmed: its outcome is unknown, or it surely has not happened; if the token still owns the attempt
--   and the effect is as it was seen.
-- Transition: none (effect: pending | uncertain -> uncertain | not_done)
-- Parameters: job_id, token, name, attempt, call (the one on record), state (uncertain | not_done), error_code, error_message
-- Locks: the outbox row, KEY SHARE, as in fence.sql; then the effect's row. Index: both primary keys.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND o.phase = 'leased'
  FOR KEY SHARE
), written AS (
  UPDATE {schema}.effects AS e
  SET attempt = CAST(:attempt AS integer), state = CAST(:state AS text), error_code = CAST(:error_code AS text),
    error_message = CAST(:error_message AS text), updated_at = {schema}.clock()
  FROM mine AS m
  WHERE e.job_id = m.job_id AND e.name = CAST(:name AS text) AND e.state IN ('pending', 'uncertain')
    AND e.call IS NOT DISTINCT FROM CAST(:call AS uuid)
  RETURNING e.job_id
)
SELECT EXISTS (SELECT 1 FROM mine) AS held, EXISTS (SELECT 1 FROM written) AS written
