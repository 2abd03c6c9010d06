-- Purpose: pick each tenant's share of the hints of one queue that go next, each from the head of its own line, and mark them released. Nothing that is paused,
--   nothing of a governed queue.
-- Transition: none (phase owed -> released)
-- Parameters: queue; tenants, shares, since_keys and since_ids (per tenant, how many at most, and where its line begins); overdue_s, kinds and versions,
--   rehint_after_s and rehint_max_s as in release.sql
-- Locks: outbox rows, SKIP LOCKED. Index: outbox_owed_tenant (which the collation names) from each place on. The pauses, a few rows, are read whole; queue_limits_pkey; primary key of jobs for each
--   row where kinds matter.
WITH paused AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything' OR (p.scope = 'queue' AND p.name = :queue)), false)
      OR coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = :queue), false) AS shut,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'tenant'), '{}') AS tenants,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}') AS kinds
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), now AS MATERIALIZED (
  SELECT CASE WHEN NOT p.shut THEN {schema}.clock() END AS instant FROM paused AS p
), picked AS MATERIALIZED (
  SELECT h.job_id
  FROM unnest(CAST(:tenants AS text[]), CAST(:shares AS integer[]), CAST(:since_keys AS timestamptz[]), CAST(:since_ids AS uuid[])) AS s(tenant, share, since, id)
  CROSS JOIN LATERAL (
    SELECT o.job_id FROM {schema}.outbox AS o
    -- Two bounds of one range and no equality, so that no other index has this order.
    WHERE o.phase = 'owed' AND o.queue COLLATE "C" = :queue AND (o.tenant, o.order_key, o.job_id) >= (s.tenant, s.since, s.id)
      AND (o.tenant, o.order_key) <= (s.tenant, (SELECT n.instant FROM now AS n))
      AND o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
      AND s.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[]))
      AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END
      AND (CAST(:kinds AS text[]) IS NULL OR coalesce((
        SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
        WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
    ORDER BY o.tenant, o.order_key, o.job_id LIMIT s.share
    FOR UPDATE OF o SKIP LOCKED
  ) AS h
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1,
  due_at = n.instant + make_interval(secs => least(CAST(:rehint_after_s AS float8) * power(2, least(o.release_count, 20)),
    greatest(CAST(:rehint_max_s AS float8), CAST(:rehint_after_s AS float8))))
FROM now AS n
WHERE o.job_id = ANY (ARRAY(SELECT p.job_id FROM picked AS p))
RETURNING o.job_id, o.release_count, o.order_key, o.tenant
