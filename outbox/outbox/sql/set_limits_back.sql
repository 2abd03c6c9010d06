-- Purpose: take what governed queues have left of their rates, and their last change, as of now, where it is of an instant that the database's clock has not
--   reached, since it was set back: until it came there again, nothing would be earned, and each hint would be taken back.
-- Transition: none
-- Parameters: queues, batch (tenants at most)
-- Locks: the queues' rows, then tenants' rows, SKIP LOCKED: who holds one releases or changes limits just now. Index: queue_limits_pkey, tenant_limits_pkey for
--   the tenants of these queues.
WITH ahead AS MATERIALIZED (
  SELECT {schema}.clock() AS now, {schema}.clock() + interval '1 s' AS least
), rated AS MATERIALIZED (
  SELECT q.name FROM {schema}.queue_limits AS q
  WHERE q.name = ANY (CAST(:queues AS text[])) AND greatest(q.tokens_at, q.updated_at) > (SELECT a.least FROM ahead AS a)
  ORDER BY q.name FOR NO KEY UPDATE OF q SKIP LOCKED
), theirs AS MATERIALIZED (
  SELECT t.queue, t.name FROM {schema}.tenant_limits AS t
  WHERE t.queue = ANY (CAST(:queues AS text[])) AND t.tokens_at > (SELECT a.least FROM ahead AS a)
  ORDER BY t.queue, t.name LIMIT CAST(:batch AS integer) FOR NO KEY UPDATE OF t SKIP LOCKED
), of_queues AS (
  UPDATE {schema}.queue_limits AS q SET tokens_at = q.tokens_at + least(a.now - q.tokens_at, interval '0'), updated_at = least(q.updated_at, a.now)
  FROM ahead AS a WHERE q.name = ANY (ARRAY(SELECT s.name FROM rated AS s))
  RETURNING q.name
), of_tenants AS (
  UPDATE {schema}.tenant_limits AS t SET tokens_at = least(t.tokens_at, a.now)
  FROM theirs AS s CROSS JOIN ahead AS a WHERE t.queue = s.queue AND t.name = s.name
  RETURNING t.name
)
SELECT (SELECT count(*) FROM of_queues) AS queues, (SELECT count(*) FROM of_tenants) AS tenants
