-- Purpose: read the line of one concurrency key: who has its slots, who is next, who waits, in their order; first what has failed and holds it up. What has
--   no order and was not tried yet stands in its queue's line like any other, and is not in here.
-- Transition: none
-- Parameters: tenant, limit_group, limit_key, most (of each kind)
-- Locks: none. Index: dead_letters_limit_key, outbox_key_taken, outbox_key_order, outbox_key_aside; the first and the last
--   two in their order, while of those that have a slot or are next there are no more than may run.
WITH letters AS (
  SELECT d.job_id, 'blocks' AS stands, d.limit_place, NULL::timestamptz AS order_key, NULL::timestamptz AS lease_expires_at, NULL::integer AS limit_max
  FROM {schema}.dead_letters AS d
  WHERE d.limit_key = CAST(:limit_key AS text) AND d.limit_group = CAST(:limit_group AS text) AND d.tenant = CAST(:tenant AS text) AND d.discarded_at IS NULL
  ORDER BY d.limit_key, d.limit_group, d.tenant, d.limit_place, d.job_id LIMIT CAST(:most AS integer)
), taken AS (
  SELECT o.job_id, CASE o.phase WHEN 'leased' THEN CASE WHEN o.lease_expires_at > (SELECT {schema}.clock()) THEN 'running' ELSE 'lease_expired' END
      WHEN 'released' THEN 'hinted' ELSE 'next' END AS stands,
    o.limit_place, o.order_key, o.lease_expires_at, o.limit_max
  FROM {schema}.outbox AS o
  WHERE o.limit_key = CAST(:limit_key AS text) AND o.limit_group = CAST(:limit_group AS text) AND o.tenant = CAST(:tenant AS text)
    AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
  LIMIT CAST(:most AS integer)
), placed AS (
  SELECT o.job_id, 'waits' AS stands, o.limit_place, o.order_key, o.lease_expires_at, o.limit_max FROM {schema}.outbox AS o
  WHERE o.limit_key = CAST(:limit_key AS text) AND o.limit_group = CAST(:limit_group AS text) AND o.tenant = CAST(:tenant AS text)
    AND o.limit_place IS NOT NULL
  ORDER BY o.limit_key, o.limit_group, o.tenant, o.limit_place, o.job_id LIMIT CAST(:most AS integer)
), aside AS (
  SELECT o.job_id, 'waits' AS stands, o.limit_place, o.order_key, o.lease_expires_at, o.limit_max FROM {schema}.outbox AS o
  WHERE o.limit_key = CAST(:limit_key AS text) AND o.limit_group = CAST(:limit_group AS text) AND o.tenant = CAST(:tenant AS text)
    AND o.phase = 'owed' AND o.last_error = 'waits for its key' AND o.limit_place IS NULL
  ORDER BY o.limit_key, o.limit_group, o.tenant, o.order_key, o.job_id LIMIT CAST(:most AS integer)
), line AS (
  SELECT l.*, 0 AS part FROM letters AS l
  UNION ALL SELECT t.*, 1 FROM taken AS t
  UNION ALL SELECT p.*, 2 FROM placed AS p WHERE p.job_id NOT IN (SELECT t.job_id FROM taken AS t)
  UNION ALL SELECT a.*, 3 FROM aside AS a
)
SELECT l.job_id, l.stands, l.limit_place, l.lease_expires_at, l.limit_max FROM line AS l
ORDER BY l.part, l.stands = 'next', l.limit_place, CASE WHEN l.limit_place IS NULL THEN l.order_key END, l.job_id LIMIT CAST(:most AS integer) + 1
