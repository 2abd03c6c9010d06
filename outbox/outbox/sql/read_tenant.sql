-- Purpose: read a tenant's own limits and weight in a queue, whose row the caller has locked; or what is left to tenants of which nothing is written down (name '').
-- Transition: none
-- Parameters: queue, tenant
-- Locks: none. Index: tenant_limits_pkey.
SELECT t.queue, t.name, t.max_running, t.rate_per_s, t.burst, t.weight, t.tokens, t.tokens_at, t.updated_at
FROM {schema}.tenant_limits AS t WHERE t.queue = CAST(:queue AS text) AND t.name = CAST(:tenant AS text)
