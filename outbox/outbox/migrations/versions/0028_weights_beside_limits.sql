-- A tenant's weight stands beside its limits, so that one row says all of a tenant in a queue, and the release reads it by one probe. What was set before is
-- taken over. A constant default rewrites no row. tenants is read no more; releases before this one may still want it, so it stays.
-- The name '' says what is left of a queue's rate for each tenant to those of which nothing is written down, after that rate was changed.
ALTER TABLE {schema}.tenant_limits
  ADD COLUMN weight integer NOT NULL DEFAULT 1,
  ADD CONSTRAINT tenant_limits_weight CHECK (weight >= 1);
INSERT INTO {schema}.tenant_limits (queue, name, weight, updated_at)
SELECT t.queue, t.name, t.weight, t.updated_at FROM {schema}.tenants AS t WHERE t.weight <> 1
ON CONFLICT (queue, name) DO UPDATE SET weight = excluded.weight;
