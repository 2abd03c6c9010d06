-- The spine: jobs, what is owed to them, their history, and the tables that later steps fill.
-- {schema} stands for the quoted schema name. Ids are UUIDv7, so that primary keys grow at the right-hand end.

-- The one clock of every transition. The body is inlined by the planner and costs nothing; tests replace it to drive time.
CREATE FUNCTION {schema}.clock() RETURNS timestamptz
  LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- The book of record. No index on a column that a transition changes, and room on each page: both updates of a job's life stay heap-only.
-- 33: a batch moves whole pages at once, the row grows by its lease, and while an older statement runs nothing dead may be cleared away:
-- so there is room for all three versions of each row. At 40 one update in twenty went to another page and into every index (measured).
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
) WITH (fillfactor = 33);

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
-- job_id: jobs that were submitted together have one order_key, and a look must be able to begin in the middle of them.
CREATE INDEX outbox_owed ON {schema}.outbox (queue, order_key, job_id) WHERE phase = 'owed';
-- Jobs of negative priority stand behind the present in outbox_owed until they have aged; here those that are due are found meanwhile.
CREATE INDEX outbox_owed_low ON {schema}.outbox (queue, order_key) WHERE phase = 'owed' AND order_key > due_at;
CREATE INDEX outbox_released ON {schema}.outbox (queue, released_at) WHERE phase = 'released';
-- due_at of a leased row is when its lease would end if nobody had extended it since the last look: from there on it is looked at.
CREATE INDEX outbox_leased ON {schema}.outbox (due_at) WHERE phase = 'leased';
CREATE INDEX outbox_deadline ON {schema}.outbox (deadline_at) WHERE deadline_at IS NOT NULL;

-- Wakes a relay that sleeps. Only while one asks for it, by holding the advisory lock, does the transaction notify: such commits go through
-- one at a time, so a busy relay doesn't ask. Seen at the insert, not at the commit: whoever is missed in between waits for the next look.
-- A transaction that has notified can't be prepared for a two-phase commit, so nobody is notified where a server allows these. Nor is anybody
-- while the server's queue of notifications is half full: a full one would fail the commit. What goes wrong in here costs a wake-up, not the insert.
CREATE FUNCTION {schema}.wake_relay() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_key bigint := 1869771876::bigint << 32 | TG_RELID::bigint;
BEGIN
  -- One expression takes the lock and gives it back: a cancellation between two statements would leave it with the session.
  IF pg_catalog.pg_try_advisory_lock_shared(v_key) AND pg_catalog.pg_advisory_unlock_shared(v_key) THEN
    NULL;
  ELSIF pg_catalog.current_setting('max_prepared_transactions') = '0' AND pg_catalog.pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_catalog.pg_notify('outbox_' || TG_RELID, '');
  END IF;
  RETURN NULL;
EXCEPTION WHEN insufficient_privilege OR out_of_memory THEN  -- no right to these functions; no room in the lock table
  RETURN NULL;
END
$function$;
CREATE TRIGGER outbox_wake BEFORE INSERT ON {schema}.outbox FOR EACH STATEMENT EXECUTE FUNCTION {schema}.wake_relay();

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

-- Writes jobs with their outbox rows and says how many keys were taken already. The suffix is the function's version: writers of two releases may
-- share one database. The text holds columns between U+001E, and in each the values between U+001F, which no value can hold: first the
-- options of all jobs (an empty one is NULL), then the jobs' properties. One short text costs least to parse, at every call and for every
-- driver. The caller has sorted the jobs by kind and key (bytes), so that two batches can't deadlock on each other's keys.
-- Without p_keys_free a taken key is passed over; with it, it raises unique_violation, and a free one costs a quarter less (measured).
CREATE FUNCTION {schema}.write_jobs_1(p_jobs text, p_keys_free boolean) RETURNS integer
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_columns text[] := string_to_array(p_jobs, E'\x1e');
  v_options text[] := string_to_array(v_columns[1], E'\x1f', '');
  v_ids uuid[] := string_to_array(v_columns[2], E'\x1f')::uuid[];
  v_kinds text[] := string_to_array(v_columns[3], E'\x1f');
  v_keys text[] := string_to_array(v_columns[4], E'\x1f');
  v_versions integer[] := string_to_array(v_columns[5], E'\x1f')::integer[];
  v_queues text[] := string_to_array(v_columns[6], E'\x1f');
  v_digests text[] := string_to_array(v_columns[7], E'\x1f');
  v_payloads text[] := string_to_array(v_columns[8], E'\x1f');
  v_tenant text := v_options[1];
  v_priority smallint := v_options[2]::smallint;
  v_now timestamptz := {schema}.clock();
  v_run_at timestamptz := coalesce(v_options[3]::timestamptz, v_now);
  v_deadline_at timestamptz := v_options[4]::timestamptz;
  v_max_attempts integer := v_options[5]::integer;
  v_written integer;
BEGIN
  IF p_keys_free THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, created_at)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_now
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads) AS i(id, kind, key, version, queue, digest, payload);
  ELSE
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, created_at)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_now
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads) AS i(id, kind, key, version, queue, digest, payload)
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING;
  END IF;
  GET DIAGNOSTICS v_written = ROW_COUNT;
  IF v_written = cardinality(v_ids) THEN
    INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
    SELECT i.id, i.queue, v_tenant, v_run_at - v_priority * interval '1 minute', v_run_at, v_deadline_at
    FROM unnest(v_ids, v_queues) AS i(id, queue);
  ELSIF v_written > 0 THEN
    INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
    SELECT i.id, i.queue, v_tenant, v_run_at - v_priority * interval '1 minute', v_run_at, v_deadline_at
    FROM unnest(v_ids, v_queues) AS i(id, queue)
    WHERE (SELECT true FROM {schema}.jobs AS j WHERE j.id = i.id);  -- a subquery, since no plan can turn it into a join
  END IF;
  RETURN cardinality(v_ids) - v_written;
END
$function$;

-- Writes jobs whose keys are all free and returns true, or writes nothing and returns false. What it has written by then is taken back,
-- so the caller's transaction stays usable. Not for single jobs: each call costs a subtransaction.
CREATE FUNCTION {schema}.enqueue_new_1(p_jobs text) RETURNS boolean
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  PERFORM {schema}.write_jobs_1(p_jobs, true);
  RETURN true;
EXCEPTION WHEN unique_violation OR serialization_failure THEN
  RETURN false;
END
$function$;

-- Writes the jobs whose keys are free and returns NULL if that was all of them, else for each job, as JSON, who holds its key:
-- [id, state, digest], or nulls if it can't be seen.
-- READ COMMITTED: a row that a rival has just committed is seen by the last statement here.
-- Above it the snapshot may be older than the rival's commit. PostgreSQL then raises 40001; each row is tried again in a subtransaction of
-- its own, and one that this snapshot can't see comes back without an id. The caller's transaction stays usable in every case.
CREATE FUNCTION {schema}.enqueue_1(p_jobs text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_columns text[];
  v_ids uuid[];
  v_job text;
  v_taken integer;
BEGIN
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
    v_taken := {schema}.write_jobs_1(p_jobs, false);
  ELSE
    BEGIN
      v_taken := {schema}.write_jobs_1(p_jobs, false);
    EXCEPTION WHEN serialization_failure THEN
      v_taken := NULL;
    END;
  END IF;
  IF v_taken = 0 THEN
    RETURN NULL;
  END IF;
  v_columns := string_to_array(p_jobs, E'\x1e');
  v_ids := string_to_array(v_columns[2], E'\x1f')::uuid[];
  IF v_taken IS NULL THEN
    FOR v_job IN
      SELECT v_columns[1] || string_agg(E'\x1e' || p.value, '' ORDER BY c.n)
      FROM unnest(v_columns[2:]) WITH ORDINALITY AS c(v, n),
        LATERAL unnest(string_to_array(c.v, E'\x1f')) WITH ORDINALITY AS p(value, place)
      GROUP BY p.place ORDER BY p.place
    LOOP
      BEGIN
        PERFORM {schema}.write_jobs_1(v_job, false);
      EXCEPTION WHEN serialization_failure THEN
        NULL;
      END;
    END LOOP;
  END IF;
  RETURN (
    SELECT json_agg(json_build_array(j.id, j.state, encode(j.payload_digest, 'hex')) ORDER BY i.n)
    FROM unnest(v_ids, string_to_array(v_columns[3], E'\x1f'), string_to_array(v_columns[4], E'\x1f'))
        WITH ORDINALITY AS i(id, kind, key, n)
      LEFT JOIN LATERAL (
        SELECT k.id, k.state, k.payload_digest FROM {schema}.jobs AS k
        WHERE k.tenant = split_part(v_columns[1], E'\x1f', 1) AND k.kind = i.kind AND k.logical_key = i.key
        LIMIT 1  -- keeps the planner to one index probe per key
      ) AS j ON true);
END
$function$;
