-- Purpose: take away the bound of a queue, or of a tenant's part of it, and audit who and why. No row: there was none, and nothing is written.
-- Transition: none
-- Parameters: queue, tenant ('' for the whole queue), actor, reason
-- Locks: the bound's row. Index: queue_bounds_pkey.
WITH gone AS (
  DELETE FROM {schema}.queue_bounds AS b WHERE b.queue = CAST(:queue AS text) AND b.tenant = CAST(:tenant AS text)
  RETURNING b.queue, b.tenant, b.max_backlog, b.max_oldest_s, b.policy, b.keeps, b.longest_s, b.actor, b.reason, b.at
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'queue.unbound', 'queue ' || g.queue, CAST(:reason AS text), jsonb_build_object('tenant', g.tenant)
  FROM gone AS g
  RETURNING id
)
SELECT g.* FROM gone AS g
