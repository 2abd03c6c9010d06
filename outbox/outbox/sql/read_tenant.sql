-- Purpose: read a tenant's own limits in a queue, whose row the caller has locked.
-- Transition: none
-- Parameters: queue, tenant
-- Locks: none. Index: tenant_limits_pkey, tenants_pkey.
SELECT t.queue, t.name, t.max_running, t.rate_per_s, t.burst, t.tokens, t.tokens_at, t.updated_at,
  coalesce((SELECT w.weight FROM {schema}.tenants AS w WHERE w.queue = t.queue AND w.name = t.name), 1) AS weight
FROM {schema}.tenant_limits AS t WHERE t.queue = CAST(:queue AS text) AND t.name = CAST(:tenant AS text)
