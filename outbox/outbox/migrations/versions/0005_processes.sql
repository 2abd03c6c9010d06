-- Who works here: a row for each relay and consumer, renewed by itself every few seconds. For people and for the question why a job doesn't run;
-- nothing that moves a job reads it. No index but the key, and room on each page: renewals stay heap-only.
CREATE TABLE {schema}.processes (
  name       text PRIMARY KEY,
  role       text NOT NULL,
  host       text NOT NULL,
  pid        integer NOT NULL,
  version    text NOT NULL,
  works_for  text[] NOT NULL,
  kinds      text[] NOT NULL,
  versions   integer[] NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL,
  CONSTRAINT processes_role CHECK (role IN ('relay', 'consumer')),
  CONSTRAINT processes_abilities CHECK (cardinality(kinds) = cardinality(versions))
) WITH (fillfactor = 50);
