-- Purpose: look through a piece of the concurrency keys for which jobs are set aside, and put back in line what may start now: for the case that whoever
--   freed a slot could not see a job that was just being set aside, or died before it could, or nobody did: a lease has expired.
-- Transition: none
-- Parameters: limit_key, limit_group, tenant (behind which key the piece begins), most (keys looked at)
-- Locks: outbox rows, SKIP LOCKED, of each key the first ones. Index: outbox_key_aside, one probe for each key; then the key's own (see {schema}.free_key).
WITH RECURSIVE known(limit_key, limit_group, tenant, place) AS (
  (SELECT o.limit_key, o.limit_group, o.tenant, 1 FROM {schema}.outbox AS o
   WHERE o.limit_key IS NOT NULL AND o.phase = 'owed' AND o.last_error = 'waits for its key'
     AND (o.limit_key, o.limit_group, o.tenant) > (CAST(:limit_key AS text), CAST(:limit_group AS text), CAST(:tenant AS text))
   ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1)
  UNION ALL
  SELECT m.limit_key, m.limit_group, m.tenant, k.place + 1 FROM known AS k CROSS JOIN LATERAL (
    SELECT o.limit_key, o.limit_group, o.tenant FROM {schema}.outbox AS o
    WHERE o.limit_key IS NOT NULL AND o.phase = 'owed' AND o.last_error = 'waits for its key'
      AND (o.limit_key, o.limit_group, o.tenant) > (k.limit_key, k.limit_group, k.tenant)
    ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1
  ) AS m
  WHERE k.place < CAST(:most AS integer)
)
SELECT k.limit_key, k.limit_group, k.tenant, {schema}.free_key(k.tenant, k.limit_group, k.limit_key) AS moved FROM known AS k
