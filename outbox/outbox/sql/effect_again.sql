-- Purpose: record that an effect which is known not to have happened, or may be doubled, is about to be sent again, if the token still owns
--   the attempt and the effect is as it was seen. Run twice it says the same.
-- Transition: none (effect: pending | uncertain | not_done -> pending)
-- Parameters: job_id, token, name, attempt, seen (the call on record), call (the new one)
-- Locks: the outbox row, KEY SHARE, as in fence.sql; then the effect's row. Index: both primary keys.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND o.phase = 'leased'
  FOR KEY SHARE
), again AS (
  UPDATE {schema}.effects AS e
  SET attempt = CAST(:attempt AS integer), state = 'pending', call = CAST(:call AS uuid), updated_at = {schema}.clock(),
    sends = e.sends + CASE WHEN e.call = CAST(:call AS uuid) THEN 0 ELSE 1 END
  FROM mine AS m
  WHERE e.job_id = m.job_id AND e.name = CAST(:name AS text) AND e.state <> 'confirmed'
    AND (e.call IS NOT DISTINCT FROM CAST(:seen AS uuid) OR e.call = CAST(:call AS uuid))
  RETURNING e.job_id
)
SELECT EXISTS (SELECT 1 FROM mine) AS held, EXISTS (SELECT 1 FROM again) AS written
