-- The spine: jobs, what is owed to them, their history, and the tables that later steps fill.
-- {schema} stands for the quoted schema name. Ids are UUIDv7, so that primary keys grow at the right-hand end.

-- The one clock of every transition. The body is inlined by the planner and costs nothing; tests replace it to drive time.
CREATE FUNCTION {schema}.clock() RETURNS timestamptz
  LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- The book of record. No index on a column that a transition changes, and room on each page: both updates of a job's life stay heap-only.
-- 40: a batch moves whole pages at once, and the row grows by its lease. Less room costs more space, in dead versions elsewhere (measured).
-- The lease columns say who holds the job while it is running, and who held it last afterwards; the token is gone with the end.
-- How long the lease lasts stands in the outbox row alone, so that a heartbeat never touches this table.
CREATE TABLE {schema}.jobs (
  id                    uuid PRIMARY KEY,
  tenant                text NOT NULL,
  kind                  text NOT NULL,
  logical_key           text NOT NULL,
  version               integer NOT NULL,
  queue                 text NOT NULL,
  priority              smallint NOT NULL DEFAULT 0,
  payload               jsonb NOT NULL,
  payload_digest        bytea NOT NULL,
  state                 text NOT NULL DEFAULT 'ready',
  run_at                timestamptz NOT NULL,
  deadline_at           timestamptz,
  max_attempts          integer,
  attempt_count         integer NOT NULL DEFAULT 0,
  uncharged_attempts    integer NOT NULL DEFAULT 0,
  lease_token           uuid,
  lease_owner           text,
  lease_host            text,
  lease_worker_version  text,
  lease_handler_version text,
  lease_started_at      timestamptz,
  progress              text,
  cancel_requested_at   timestamptz,
  cancel_requested_by   text,
  cancel_reason         text,
  first_error_class     text,
  first_error_code      text,
  first_error_message   text,
  last_error_class      text,
  last_error_code       text,
  last_error_message    text,
  correlation_id        text,
  parent_id             uuid,
  trace_context         jsonb,
  created_at            timestamptz NOT NULL,
  finished_at           timestamptz,
  CONSTRAINT jobs_logical_key UNIQUE (tenant, kind, logical_key),
  CONSTRAINT jobs_state CHECK (state IN ('ready', 'running', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT jobs_lease CHECK ((state = 'running') = (lease_token IS NOT NULL)),
  CONSTRAINT jobs_finished CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
  CONSTRAINT jobs_attempts CHECK (uncharged_attempts >= 0 AND uncharged_attempts <= attempt_count AND attempt_count < 1000000000),
  -- What every driver can read back: one instant that can't be read would spoil a whole batch of claims.
  CONSTRAINT jobs_instants CHECK (run_at BETWEEN '1970-01-01Z' AND '9999-01-01Z' AND created_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND (deadline_at IS NULL OR deadline_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'))
) WITH (fillfactor = 40);

-- The hot to-do list: one row for each job that has not ended. No foreign key: its check would lock the job row before this one's turn.
-- order_key = due_at - priority minutes, set when the row is inserted and when a retry is put off: priority with aging and no updates.
CREATE TABLE {schema}.outbox (
  job_id           uuid PRIMARY KEY,
  phase            text NOT NULL DEFAULT 'owed',
  queue            text NOT NULL,
  tenant           text NOT NULL,
  order_key        timestamptz NOT NULL,
  due_at           timestamptz NOT NULL,
  deadline_at      timestamptz,
  released_at      timestamptz,
  release_count    integer NOT NULL DEFAULT 0,
  lease_token      uuid,
  lease_expires_at timestamptz,
  last_error       text,
  CONSTRAINT outbox_phase CHECK (phase IN ('owed', 'released', 'leased')),
  CONSTRAINT outbox_released CHECK (phase <> 'released' OR released_at IS NOT NULL),
  CONSTRAINT outbox_leased CHECK ((phase = 'leased') = (lease_token IS NOT NULL) AND (phase = 'leased') = (lease_expires_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- One partial index per phase. None holds lease_expires_at, so that heartbeats stay heap-only.
CREATE INDEX outbox_owed ON {schema}.outbox (queue, order_key) WHERE phase = 'owed';
-- Jobs of negative priority stand behind the present in outbox_owed until they have aged; here those that are due are found meanwhile.
CREATE INDEX outbox_owed_low ON {schema}.outbox (queue, order_key) WHERE phase = 'owed' AND order_key > due_at;
CREATE INDEX outbox_released ON {schema}.outbox (queue, released_at) WHERE phase = 'released';
CREATE INDEX outbox_leased ON {schema}.outbox (queue, tenant) WHERE phase = 'leased';
CREATE INDEX outbox_deadline ON {schema}.outbox (deadline_at) WHERE deadline_at IS NOT NULL;

-- One row per lease, written in the transaction that ends it and never again.
CREATE TABLE {schema}.attempts (
  job_id          uuid NOT NULL,
  number          integer NOT NULL,
  lease_token     uuid NOT NULL,
  worker          text NOT NULL,
  host            text NOT NULL,
  worker_version  text NOT NULL,
  handler_version text NOT NULL,
  hinted_at       timestamptz,
  claimed_at      timestamptz NOT NULL,
  ended_at        timestamptz NOT NULL,
  outcome         text NOT NULL,
  error_class     text,
  error_code      text,
  error_message   text,
  traceback       text,
  effects_touched text[],
  PRIMARY KEY (job_id, number),
  CONSTRAINT attempts_number CHECK (number >= 1),
  CONSTRAINT attempts_outcome CHECK (outcome IN ('succeeded', 'retried', 'failed', 'handed_back', 'lease_lost', 'cancelled'))
);

CREATE TABLE {schema}.effects (
  job_id            uuid NOT NULL,
  name              text NOT NULL,
  state             text NOT NULL,
  arguments_digest  bytea NOT NULL,
  attempt           integer NOT NULL,
  remote_request_id text,
  result            jsonb,
  created_at        timestamptz NOT NULL,
  confirmed_at      timestamptz,
  PRIMARY KEY (job_id, name),
  CONSTRAINT effects_state CHECK (state IN ('pending', 'confirmed', 'uncertain'))
);

CREATE TABLE {schema}.checkpoints (
  job_id     uuid NOT NULL,
  name       text NOT NULL,
  attempt    integer NOT NULL,
  value      jsonb NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (job_id, name)
);

CREATE TABLE {schema}.inbox (
  key              text PRIMARY KEY,
  arguments_digest bytea NOT NULL,
  result           jsonb,
  created_at       timestamptz NOT NULL
);

CREATE TABLE {schema}.schedules (
  name         text PRIMARY KEY,
  kind         text NOT NULL,
  tenant       text NOT NULL,
  version      integer NOT NULL,
  queue        text NOT NULL,
  payload      jsonb NOT NULL,
  rule         text NOT NULL,
  time_zone    text NOT NULL,
  paused       boolean NOT NULL DEFAULT false,
  next_at      timestamptz,
  last_at      timestamptz,
  last_error   text,
  created_at   timestamptz NOT NULL,
  updated_at   timestamptz NOT NULL
);

CREATE TABLE {schema}.queues (
  name        text PRIMARY KEY,
  paused      boolean NOT NULL DEFAULT false,
  max_running integer,
  weight      integer NOT NULL DEFAULT 1,
  updated_at  timestamptz NOT NULL,
  CONSTRAINT queues_max_running CHECK (max_running IS NULL OR max_running >= 0),
  CONSTRAINT queues_weight CHECK (weight >= 1)
);

CREATE TABLE {schema}.tenants (
  queue       text NOT NULL,
  name        text NOT NULL,
  paused      boolean NOT NULL DEFAULT false,
  max_running integer,
  weight      integer NOT NULL DEFAULT 1,
  updated_at  timestamptz NOT NULL,
  PRIMARY KEY (queue, name),
  CONSTRAINT tenants_max_running CHECK (max_running IS NULL OR max_running >= 0),
  CONSTRAINT tenants_weight CHECK (weight >= 1)
);

CREATE TABLE {schema}.redrives (
  id         uuid PRIMARY KEY,
  job_id     uuid NOT NULL,
  actor      text NOT NULL,
  reason     text NOT NULL,
  from_state text NOT NULL,
  created_at timestamptz NOT NULL
);
CREATE INDEX redrives_job ON {schema}.redrives (job_id);

-- Who changed what, and why. Rows are only ever added.
CREATE TABLE {schema}.audit (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL,
  actor      text NOT NULL,
  action     text NOT NULL,
  subject    text NOT NULL,
  reason     text NOT NULL,
  detail     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_subject ON {schema}.audit (subject);

-- Writes job and outbox rows together, in one statement, and says how many were new. Keys are inserted in one order, so that two batches
-- can't deadlock on each other's. The suffix is the function's version: writers of two releases may share one database.
CREATE FUNCTION {schema}.write_jobs_1(p_rows jsonb) RETURNS bigint
  LANGUAGE sql VOLATILE
AS $function$
  WITH added AS (
    INSERT INTO {schema}.jobs AS j (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest,
      run_at, deadline_at, max_attempts, correlation_id, parent_id, trace_context, created_at)
    SELECT i.id, i.tenant, i.kind, i.logical_key, i.version, i.queue, i.priority, i.payload, decode(i.digest, 'hex'),
      coalesce(i.run_at, c.now), i.deadline_at, i.max_attempts, i.correlation_id, i.parent_id, i.trace_context, c.now
    FROM jsonb_to_recordset(p_rows) AS i(id uuid, tenant text, kind text, logical_key text, version integer, queue text,
        priority smallint, payload jsonb, digest text, run_at timestamptz, deadline_at timestamptz, max_attempts integer,
        correlation_id text, parent_id uuid, trace_context jsonb),
      (SELECT {schema}.clock() AS now) AS c
    ORDER BY i.tenant COLLATE "C", i.kind COLLATE "C", i.logical_key COLLATE "C"
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING
    RETURNING j.id, j.queue, j.tenant, j.priority, j.run_at, j.deadline_at
  ), owed AS (
    INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
    SELECT a.id, a.queue, a.tenant, a.run_at - a.priority * interval '1 minute', a.run_at, a.deadline_at FROM added AS a
    RETURNING 1
  )
  SELECT count(*) FROM owed
$function$;

-- The writer's whole conversation in one round trip.
-- READ COMMITTED: a row that a rival has just committed is seen by the second statement here.
-- Above it the snapshot may be older than the rival's commit. PostgreSQL then raises 40001; each row is tried again in a subtransaction of
-- its own, and one that this snapshot can't see comes back without an id. The caller's transaction stays usable in every case.
CREATE FUNCTION {schema}.enqueue_1(p_rows jsonb)
  RETURNS TABLE (ordinal integer, job_id uuid, created boolean, job_state text, job_digest text)
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_count integer := jsonb_array_length(p_rows);
  v_written bigint;
BEGIN
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
    v_written := {schema}.write_jobs_1(p_rows);
  ELSE
    BEGIN
      v_written := {schema}.write_jobs_1(p_rows);
    EXCEPTION WHEN serialization_failure THEN
      v_written := 0;
      FOR v_index IN 0 .. v_count - 1 LOOP  -- the caller has sorted them by key
        BEGIN
          v_written := v_written + {schema}.write_jobs_1(jsonb_build_array(p_rows -> v_index));
        EXCEPTION WHEN serialization_failure THEN
          NULL;
        END;
      END LOOP;
    END;
  END IF;
  IF v_written = v_count THEN
    RETURN QUERY SELECT i.n, i.id, true, 'ready'::text, i.digest
      FROM jsonb_to_recordset(p_rows) AS i(n integer, id uuid, digest text);
  ELSE
    RETURN QUERY SELECT i.n, j.id, coalesce(j.id = i.id, false), j.state, encode(j.payload_digest, 'hex')
      FROM jsonb_to_recordset(p_rows) AS i(n integer, id uuid, tenant text, kind text, logical_key text)
      LEFT JOIN {schema}.jobs AS j ON j.tenant = i.tenant AND j.kind = i.kind AND j.logical_key = i.logical_key;
  END IF;
END
$function$;
