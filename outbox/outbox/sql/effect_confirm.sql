-- Purpose: record that an effect has happened, with what came of it, if the token still owns the attempt and the effect is as it was seen.
--   Run twice it says the same, also while its first run, whose connection broke, is still under way: it waits for that one's row, and writes
--   over it what stands there.
-- Transition: none (effect: pending | uncertain -> confirmed)
-- Parameters: job_id, token, name, attempt, call (the one on record), settled_by (send | reconcile | policy), result (JSON text, or NULL), result_note (why there is none), remote_request_id
-- Locks: the outbox row, KEY SHARE, as in fence.sql; then the effect's row. Index: both primary keys.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND o.phase = 'leased'
  FOR KEY SHARE
), confirmed AS (
  UPDATE {schema}.effects AS e
  SET attempt = CAST(:attempt AS integer), state = 'confirmed', settled_by = CAST(:settled_by AS text),
    result = CAST(CAST(:result AS text) AS jsonb), result_note = CAST(:result_note AS text),
    remote_request_id = coalesce(CAST(:remote_request_id AS text), e.remote_request_id),
    error_code = NULL, error_message = NULL, updated_at = n.now, confirmed_at = coalesce(e.confirmed_at, n.now)
  FROM mine AS m, (SELECT {schema}.clock() AS now) AS n
  WHERE e.job_id = m.job_id AND e.name = CAST(:name AS text) AND e.state <> 'not_done' AND e.call IS NOT DISTINCT FROM CAST(:call AS uuid)
  RETURNING e.job_id
)
SELECT EXISTS (SELECT 1 FROM mine) AS held, EXISTS (SELECT 1 FROM confirmed) AS written
