-- Purpose: record that an external effect is about to be sent for the first time, if the token still owns the attempt; or tell what is
--   recorded of it already. Its commit comes before the call that it announces.
-- Transition: none (effect: nothing -> pending)
-- Parameters: job_id, token, name, digest (of the arguments), attempt, call (drawn anew for each call, so that a lost answer can be told from another's row)
-- Locks: the outbox row, KEY SHARE, as in fence.sql; then the effect's row, if somebody inserts it just now. Index: both primary keys.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND o.phase = 'leased'
  FOR KEY SHARE
), begun AS (
  INSERT INTO {schema}.effects (job_id, name, state, arguments_digest, attempt, call, sends, created_at, updated_at)
  SELECT m.job_id, CAST(:name AS text), 'pending', CAST(:digest AS bytea), CAST(:attempt AS integer), CAST(:call AS uuid), 1, n.now, n.now
  FROM mine AS m, (SELECT {schema}.clock() AS now) AS n
  ON CONFLICT (job_id, name) DO NOTHING
  RETURNING job_id
)
SELECT EXISTS (SELECT 1 FROM mine) AS held, EXISTS (SELECT 1 FROM begun) AS begun, e.state, e.call, e.arguments_digest, e.attempt,
  e.result::text AS result_text, e.result_note, e.remote_request_id,
  CAST(extract(epoch FROM {schema}.clock() - e.created_at) AS float8) AS age_s
FROM (SELECT CAST(:job_id AS uuid) AS job_id) AS i
LEFT JOIN {schema}.effects AS e ON e.job_id = i.job_id AND e.name = CAST(:name AS text)
