-- What is not started for now: a queue, a kind, a tenant, everything. A row for each pause, with who and why; a few rows at most.
-- resumed_at: the pause is over, and what was set aside for it is being put back in line; then the row goes.
-- The columns queues.paused and tenants.paused, which nothing has ever read, are not used.
CREATE TABLE {schema}.pauses (
  scope      text NOT NULL,
  name       text NOT NULL,
  actor      text NOT NULL,
  reason     text NOT NULL,
  at         timestamptz NOT NULL,
  resumed_at timestamptz,
  PRIMARY KEY (scope, name),
  CONSTRAINT pauses_scope CHECK (scope IN ('everything', 'queue', 'kind', 'tenant')),
  CONSTRAINT pauses_name CHECK ((scope = 'everything') = (name = '')),
  -- What every driver can read back.
  CONSTRAINT pauses_instants CHECK (at BETWEEN '1970-01-01Z' AND '9999-01-01Z' AND coalesce(resumed_at, at) BETWEEN '1970-01-01Z' AND '9999-01-01Z')
);
