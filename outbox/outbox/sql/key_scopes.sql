-- Purpose: find the groups and tenants in which jobs that have not ended stand in line for a concurrency key, or hold a slot of it, or a failed one holds it up.
-- Transition: none
-- Parameters: limit_key, most (of each way)
-- Locks: none. Index: outbox_key_taken, outbox_key_aside, outbox_key_order, dead_letters_limit_key: one probe of each for each group and tenant.
WITH RECURSIVE taken(limit_group, tenant, n) AS (
  (SELECT o.limit_group, o.tenant, 1 FROM {schema}.outbox AS o
   WHERE o.limit_key = CAST(:limit_key AS text) AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
   ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1)
  UNION ALL
  SELECT m.limit_group, m.tenant, k.n + 1 FROM taken AS k CROSS JOIN LATERAL (
    SELECT o.limit_group, o.tenant FROM {schema}.outbox AS o
    WHERE o.limit_key = CAST(:limit_key AS text) AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
      AND (o.limit_group, o.tenant) > (k.limit_group, k.tenant)
    ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1) AS m
  WHERE k.n < CAST(:most AS integer)
), aside(limit_group, tenant, n) AS (
  (SELECT o.limit_group, o.tenant, 1 FROM {schema}.outbox AS o
   WHERE o.limit_key = CAST(:limit_key AS text) AND o.phase = 'owed' AND o.last_error = 'waits for its key'
   ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1)
  UNION ALL
  SELECT m.limit_group, m.tenant, k.n + 1 FROM aside AS k CROSS JOIN LATERAL (
    SELECT o.limit_group, o.tenant FROM {schema}.outbox AS o
    WHERE o.limit_key = CAST(:limit_key AS text) AND o.phase = 'owed' AND o.last_error = 'waits for its key'
      AND (o.limit_group, o.tenant) > (k.limit_group, k.tenant)
    ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1) AS m
  WHERE k.n < CAST(:most AS integer)
), placed(limit_group, tenant, n) AS (
  (SELECT o.limit_group, o.tenant, 1 FROM {schema}.outbox AS o
   WHERE o.limit_key = CAST(:limit_key AS text) AND o.limit_place IS NOT NULL ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1)
  UNION ALL
  SELECT m.limit_group, m.tenant, k.n + 1 FROM placed AS k CROSS JOIN LATERAL (
    SELECT o.limit_group, o.tenant FROM {schema}.outbox AS o
    WHERE o.limit_key = CAST(:limit_key AS text) AND o.limit_place IS NOT NULL AND (o.limit_group, o.tenant) > (k.limit_group, k.tenant)
    ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1) AS m
  WHERE k.n < CAST(:most AS integer)
), letters(limit_group, tenant, n) AS (
  (SELECT d.limit_group, d.tenant, 1 FROM {schema}.dead_letters AS d
   WHERE d.limit_key = CAST(:limit_key AS text) AND d.discarded_at IS NULL ORDER BY d.limit_key, d.limit_group, d.tenant LIMIT 1)
  UNION ALL
  SELECT m.limit_group, m.tenant, k.n + 1 FROM letters AS k CROSS JOIN LATERAL (
    SELECT d.limit_group, d.tenant FROM {schema}.dead_letters AS d
    WHERE d.limit_key = CAST(:limit_key AS text) AND d.discarded_at IS NULL AND (d.limit_group, d.tenant) > (k.limit_group, k.tenant)
    ORDER BY d.limit_key, d.limit_group, d.tenant LIMIT 1) AS m
  WHERE k.n < CAST(:most AS integer)
), found AS (
  SELECT t.limit_group, t.tenant FROM taken AS t UNION SELECT a.limit_group, a.tenant FROM aside AS a
  UNION SELECT p.limit_group, p.tenant FROM placed AS p UNION SELECT l.limit_group, l.tenant FROM letters AS l
)
SELECT f.limit_group, f.tenant FROM found AS f ORDER BY f.limit_group, f.tenant LIMIT CAST(:most AS integer)
