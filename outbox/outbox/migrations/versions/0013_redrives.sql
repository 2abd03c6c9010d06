-- Redrives. The table of this name in the first release was never written; these two and the lanes take its place.
DROP TABLE {schema}.redrives;

-- One row for each redrive. Counts grow with the relays' turns: redriven and refused as items are put back, the others as their jobs end.
CREATE TABLE {schema}.redrive_operations (
  id                uuid PRIMARY KEY,
  state             text NOT NULL DEFAULT 'running',
  actor             text NOT NULL,
  reason            text NOT NULL,
  chosen            jsonb NOT NULL,
  by_ids            boolean NOT NULL,
  fingerprint       text NOT NULL,
  rate_per_s        double precision NOT NULL,
  canary            integer NOT NULL,
  stop_on_same_code boolean NOT NULL,
  failure_ratio     double precision,
  ratio_at_least    integer NOT NULL,
  include_uncertain boolean NOT NULL,
  deadline_at       timestamptz,
  total             integer NOT NULL,
  redriven          integer NOT NULL DEFAULT 0,
  refused           integer NOT NULL DEFAULT 0,
  succeeded         integer NOT NULL DEFAULT 0,
  failed            integer NOT NULL DEFAULT 0,
  otherwise         integer NOT NULL DEFAULT 0,
  canaries_done     integer NOT NULL DEFAULT 0,
  idle_turns        integer NOT NULL DEFAULT 0,
  failed_turns      integer NOT NULL DEFAULT 0,
  next_at           timestamptz NOT NULL,
  stop_reason       text,
  created_at        timestamptz NOT NULL,
  ended_at          timestamptz,
  CONSTRAINT redrive_operations_state CHECK (state IN ('running', 'paused', 'stopped', 'done', 'aborted')),
  CONSTRAINT redrive_operations_ended CHECK ((state IN ('stopped', 'done', 'aborted')) = (ended_at IS NOT NULL)),
  CONSTRAINT redrive_operations_counts CHECK (redriven + refused <= total AND succeeded + failed + otherwise <= redriven)
);
CREATE INDEX redrive_operations_due ON {schema}.redrive_operations (next_at) WHERE state = 'running';
CREATE INDEX redrive_operations_over ON {schema}.redrive_operations (ended_at) WHERE ended_at IS NOT NULL;

-- The jobs of a redrive as they were when it was decided. old_payload is what a patch has replaced.
CREATE TABLE {schema}.redrive_items (
  operation_id  uuid NOT NULL,
  job_id        uuid NOT NULL,
  kind          text NOT NULL,
  tenant        text NOT NULL,
  code          text,
  attempt_count integer NOT NULL,
  finished_at   timestamptz,
  canary        boolean NOT NULL,
  state         text NOT NULL DEFAULT 'waiting',
  refusal       text,
  outcome_code  text,
  new_payload   jsonb,
  old_payload   jsonb,
  redriven_at   timestamptz,
  PRIMARY KEY (operation_id, job_id),
  CONSTRAINT redrive_items_state CHECK (state IN ('waiting', 'refused', 'redriven', 'succeeded', 'failed', 'cancelled', 'redriven_again', 'gone')),
  CONSTRAINT redrive_items_refusal CHECK ((state = 'refused') = (refusal IS NOT NULL))
);
CREATE INDEX redrive_items_job ON {schema}.redrive_items (job_id);
CREATE INDEX redrive_items_waiting ON {schema}.redrive_items (operation_id, kind, tenant, job_id) WHERE state = 'waiting';
CREATE INDEX redrive_items_open ON {schema}.redrive_items (operation_id, job_id) WHERE state = 'redriven';
CREATE INDEX redrive_items_canary ON {schema}.redrive_items (operation_id) WHERE canary AND state IN ('waiting', 'redriven');

-- The pace of each kind and tenant in a redrive: the next may go at free_at.
CREATE TABLE {schema}.redrive_lanes (
  operation_id uuid NOT NULL,
  kind         text NOT NULL,
  tenant       text NOT NULL,
  waiting      integer NOT NULL,
  free_at      timestamptz NOT NULL,
  PRIMARY KEY (operation_id, kind, tenant)
);
CREATE INDEX redrive_lanes_free ON {schema}.redrive_lanes (operation_id, free_at) WHERE waiting > 0;
