-- Purpose: before attempts end in failure, record of the effects that they have announced and not settled that the outcome is unknown: a call
--   that never came back, was cancelled, or died with its process. Those of attempts whose tokens own them no more are left as they are.
-- Transition: none (effect: pending -> uncertain)
-- Parameters: job_ids, tokens, attempts (their numbers), error_codes
-- Locks: outbox rows in id order, KEY SHARE, as in fence.sql; then the effects' rows. Index: both primary keys (that of effects by prefix).
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:attempts AS integer[]), CAST(:error_codes AS text[]))
    AS e(job_id, token, attempt, error_code)
), mine AS MATERIALIZED (
  SELECT e.job_id, e.attempt, e.error_code
  FROM {schema}.outbox AS o JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR KEY SHARE OF o
)
UPDATE {schema}.effects AS e
SET state = 'uncertain', error_code = m.error_code, error_message = 'its attempt ended before it was known what had come of it',
  updated_at = {schema}.clock()
FROM mine AS m
WHERE e.job_id = m.job_id AND e.attempt = m.attempt AND coalesce(e.state = 'pending', false)
RETURNING e.job_id, e.name
