-- Purpose: pick the hints of a governed queue that may go next, in order, as far as pauses and their tenants' limits allow. The caller holds the
--   queue, decides, and marks some of them released (release_limited.sql).
-- Transition: none
-- Parameters: queue, since and since_id, batch, overdue_s, kinds and versions (as for release.sql), passed_over (tenants that may start nothing now),
--   chosen (jobs that have been picked already)
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed, then outbox_owed_low, as for release.sql; tenant_limits_pkey. What stands before others of tenants that are
--   passed over is stepped over.
WITH paused AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything' OR (p.scope = 'queue' AND p.name = :queue)), false) AS shut,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'tenant'), '{}') AS tenants,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}') AS kinds
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), now AS MATERIALIZED (
  -- No instant in a paused queue: nothing is due by then, which the index says without a look. One condition for all other pauses, which the
  -- planner takes for mostly true: were it to expect few rows, it would read and sort all that is due.
  SELECT CASE WHEN NOT p.shut THEN {schema}.clock() END AS instant, p.tenants = '{}' AND p.kinds = '{}' AS clear FROM paused AS p
), usual AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND (o.order_key, o.job_id) >= (CAST(:since AS timestamptz), CAST(:since_id AS uuid))
    AND o.order_key <= (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
    AND o.tenant <> ALL (CAST(:passed_over AS text[])) AND o.job_id <> ALL (CAST(:chosen AS uuid[]))
    AND ((SELECT n.clear FROM now AS n) OR (
      o.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[])) AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END))
    AND (CAST(:kinds AS text[]) IS NULL OR coalesce((
      SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
      WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
  ORDER BY o.order_key, o.job_id LIMIT CAST(:batch AS integer)
  FOR UPDATE OF o SKIP LOCKED
), low AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.order_key FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = :queue AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
    AND o.tenant <> ALL (CAST(:passed_over AS text[])) AND o.job_id <> ALL (CAST(:chosen AS uuid[]))
    AND ((SELECT n.clear FROM now AS n) OR (
      o.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[])) AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END))
    AND (CAST(:kinds AS text[]) IS NULL OR coalesce((
      SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
      WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
  ORDER BY o.order_key LIMIT CAST(:batch AS integer) - (SELECT count(*) FROM usual)
  FOR UPDATE OF o SKIP LOCKED
)
SELECT c.job_id, c.tenant, 0 AS released, 0 AS running, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at FROM (
  SELECT u.job_id, u.tenant, u.order_key FROM usual AS u UNION ALL SELECT l.job_id, l.tenant, l.order_key FROM low AS l
) AS c LEFT JOIN LATERAL (
  SELECT s.max_running, s.rate_per_s, s.burst, s.tokens, s.tokens_at FROM {schema}.tenant_limits AS s
  WHERE s.queue = :queue AND s.name = c.tenant LIMIT 1  -- keeps the planner to one index probe for each
) AS t ON true
ORDER BY c.order_key, c.job_id
