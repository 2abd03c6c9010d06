-- Limits of queues and of tenants in them: how many jobs may run, and how many may start in a second. A row for each that somebody has set any for.
-- governed: the queue, or a tenant of it, has a limit or a rate, so that each release of it holds this row first. It is kept here, for every
-- release asks. tokens: how many starts the rate allowed at tokens_at; NULL: as many as the burst.
-- Tables of their own, though 0001 made queues and tenants: to change those would lock two more tables at once. Of those only tenants.weight is used.
CREATE TABLE {schema}.queue_limits (
  name               text PRIMARY KEY,
  governed           boolean NOT NULL DEFAULT false,
  max_running        integer,
  tenant_max_running integer,
  rate_per_s         float8,
  burst              integer,
  tenant_rate_per_s  float8,
  tenant_burst       integer,
  tokens             float8,
  tokens_at          timestamptz,
  updated_at         timestamptz NOT NULL,
  CONSTRAINT queue_limits_max_running CHECK (coalesce(max_running >= 0, true) AND coalesce(tenant_max_running >= 1, true)),
  CONSTRAINT queue_limits_rate CHECK ((rate_per_s IS NULL) = (burst IS NULL) AND coalesce(rate_per_s > 0 AND burst >= 1, true)),
  CONSTRAINT queue_limits_tenant_rate
    CHECK ((tenant_rate_per_s IS NULL) = (tenant_burst IS NULL) AND coalesce(tenant_rate_per_s > 0 AND tenant_burst >= 1, true)),
  CONSTRAINT queue_limits_tokens CHECK ((tokens IS NULL) = (tokens_at IS NULL)),
  -- What every driver can read back.
  CONSTRAINT queue_limits_instants CHECK (coalesce(tokens_at, updated_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND updated_at BETWEEN '1970-01-01Z' AND '9999-01-01Z')
);

-- A tenant's own limits, instead of those that its queue gives to each; and its tokens, whoever gave the rate: such rows come and go.
CREATE TABLE {schema}.tenant_limits (
  queue       text NOT NULL,
  name        text NOT NULL,
  max_running integer,
  rate_per_s  float8,
  burst       integer,
  tokens      float8,
  tokens_at   timestamptz,
  updated_at  timestamptz NOT NULL,
  PRIMARY KEY (queue, name),
  CONSTRAINT tenant_limits_max_running CHECK (coalesce(max_running >= 0, true)),
  CONSTRAINT tenant_limits_rate CHECK ((rate_per_s IS NULL) = (burst IS NULL) AND coalesce(rate_per_s > 0 AND burst >= 1, true)),
  CONSTRAINT tenant_limits_tokens CHECK ((tokens IS NULL) = (tokens_at IS NULL)),
  CONSTRAINT tenant_limits_instants CHECK (coalesce(tokens_at, updated_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND updated_at BETWEEN '1970-01-01Z' AND '9999-01-01Z')
) WITH (fillfactor = 70);

-- How what runs is counted, per queue and tenant. No heartbeat changes it. Alone on a table in use, and SHARE is enough for it.
CREATE INDEX IF NOT EXISTS outbox_running ON {schema}.outbox (queue, tenant) WHERE phase = 'leased';
