-- Purpose: the names of the tenants and of the kinds that are paused.
-- Needs: p (pauses in force, all rows)
-- Parameters: none
coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'tenant'), '{}') AS tenants,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}') AS kinds
