-- Purpose: find all jobs of a tenant, or of a kind, or of both, if they are few: so a rare one is found however far back it stands.
-- Transition: none
-- Parameters: tenant (or NULL for all tenants, if there are no more than most_tenants), kind (or NULL), most_tenants, batch
-- Locks: none. Index: jobs_logical_key: one probe for each tenant, and one for each job. There is a row for each tenant that has none, too.
WITH RECURSIVE tenancy(name, place) AS (
  SELECT coalesce(CAST(:tenant AS text), (SELECT k.tenant FROM {schema}.jobs AS k ORDER BY k.tenant LIMIT 1)), 1
  UNION ALL
  SELECT (SELECT k.tenant FROM {schema}.jobs AS k WHERE k.tenant > t.name ORDER BY k.tenant LIMIT 1), t.place + 1
  FROM tenancy AS t WHERE CAST(:tenant AS text) IS NULL AND t.name IS NOT NULL AND t.place <= CAST(:most_tenants AS integer)
)
SELECT j.id, t.place FROM tenancy AS t LEFT JOIN LATERAL (
  SELECT k.id FROM {schema}.jobs AS k
  WHERE k.tenant = t.name AND (CAST(:kind AS text) IS NULL OR k.kind = CAST(:kind AS text))
  -- In the index's own order, so that no plan reads the whole table for a tenant that is rare.
  ORDER BY k.tenant, k.kind, k.logical_key LIMIT CAST(:batch AS integer)
) AS j ON true
WHERE t.name IS NOT NULL
LIMIT CAST(:batch AS integer) + CAST(:most_tenants AS integer) + 1
