-- Purpose: set the bound of a queue, or of a tenant's part of it, in the place of one that it may have, and audit who and why.
-- Transition: none
-- Parameters: queue, tenant ('' for the whole queue), max_backlog, max_oldest_s (NULL: no such limit), policy, keeps (the least priority that shed lets
--   pass), longest_s (the most that defer puts off), actor, reason
-- Locks: the bound's row. Index: queue_bounds_pkey.
WITH put AS (
  INSERT INTO {schema}.queue_bounds AS b (queue, tenant, max_backlog, max_oldest_s, policy, keeps, longest_s, actor, reason, at)
  SELECT CAST(:queue AS text), CAST(:tenant AS text), CAST(:max_backlog AS integer), CAST(:max_oldest_s AS float8), CAST(:policy AS text),
    CAST(:keeps AS smallint), CAST(:longest_s AS float8), CAST(:actor AS text), CAST(:reason AS text), {schema}.clock()
  ON CONFLICT (queue, tenant) DO UPDATE SET max_backlog = excluded.max_backlog, max_oldest_s = excluded.max_oldest_s, policy = excluded.policy,
    keeps = excluded.keeps, longest_s = excluded.longest_s, actor = excluded.actor, reason = excluded.reason, at = excluded.at
  RETURNING b.queue, b.tenant, b.max_backlog, b.max_oldest_s, b.policy, b.keeps, b.longest_s, b.actor, b.reason, b.at
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT p.at, p.actor, 'queue.bound', 'queue ' || p.queue, p.reason, jsonb_build_object('tenant', p.tenant, 'max_backlog', p.max_backlog,
    'max_oldest_s', p.max_oldest_s, 'policy', p.policy, 'keeps', p.keeps, 'longest_s', p.longest_s)
  FROM put AS p
  RETURNING id
)
SELECT p.* FROM put AS p
