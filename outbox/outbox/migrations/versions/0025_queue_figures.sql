-- What is known of each queue at a glance. Writers and workers of the releases before go on beside it.

-- How many jobs of each queue a consumer ended lately, in jobs a second, as it tells with its sign of life. A constant default rewrites no row.
ALTER TABLE {schema}.processes ADD COLUMN ended_per_s jsonb NOT NULL DEFAULT '{}';

-- Figures, a row for each queue with live jobs (tenant '') and for each tenant of one that has a bound of its own. Counted every second or so by
-- one process at a time, and dearer counts less often; nothing that moves a job rests on them.
-- backlog: due and not started; capped: it is at least so many. NULL figures are unknown.
CREATE TABLE {schema}.queue_figures (
  queue        text NOT NULL,
  tenant       text NOT NULL DEFAULT '',
  backlog      integer NOT NULL,
  capped       boolean NOT NULL,
  scheduled    integer NOT NULL,
  running      integer NOT NULL,
  oldest_due_s float8,
  in_per_s     float8,
  out_per_s    float8,
  late_mean_s  float8,
  late_max_s   float8,
  drain_s      float8,
  counted_at   timestamptz NOT NULL,
  PRIMARY KEY (queue, tenant)
) WITH (fillfactor = 50);

-- When the next count is due. Whoever counts holds the row, so that others pass.
CREATE TABLE {schema}.queue_count (
  name       text PRIMARY KEY,
  next_at    timestamptz NOT NULL,
  counted_at timestamptz
) WITH (fillfactor = 50);
INSERT INTO {schema}.queue_count (name, next_at) VALUES ('figures', '1970-01-01Z');

-- How full a queue may be, or a tenant's part of it (tenant '': the whole queue), and what becomes of a job beyond that. A few rows at most.
CREATE TABLE {schema}.queue_bounds (
  queue        text NOT NULL,
  tenant       text NOT NULL DEFAULT '',
  max_backlog  integer,
  max_oldest_s float8,
  policy       text NOT NULL,
  keeps        smallint NOT NULL DEFAULT 0,
  longest_s    float8 NOT NULL,
  actor        text NOT NULL,
  reason       text NOT NULL,
  at           timestamptz NOT NULL,
  PRIMARY KEY (queue, tenant),
  CONSTRAINT queue_bounds_policy CHECK (policy IN ('refuse', 'defer', 'shed')),
  CONSTRAINT queue_bounds_some CHECK (max_backlog IS NOT NULL OR max_oldest_s IS NOT NULL),
  CONSTRAINT queue_bounds_limits CHECK (max_backlog > 0 AND max_oldest_s > 0 AND longest_s > 0)
);
