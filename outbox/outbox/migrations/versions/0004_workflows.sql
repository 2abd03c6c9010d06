-- Workflows: jobs that follow from jobs, jobs that wait for sets of jobs, and what a cancelled job had done already.
-- Writers and workers of the releases before go on beside it.

-- What had happened when the job was cancelled: attempts, checkpoints, effects by state. NULL unless it was cancelled.
ALTER TABLE {schema}.jobs ADD COLUMN cancelled_after jsonb;

-- One row for each job that starts once a set of jobs has ended. The job is written with the row, due in a time that never comes; whoever
-- finds the set complete makes it due and closes the row, in one transaction.
CREATE TABLE {schema}.joins (
  job_id     uuid PRIMARY KEY,
  condition  text NOT NULL,
  run_at     timestamptz,
  members    integer NOT NULL,
  created_at timestamptz NOT NULL,
  closed_at  timestamptz,
  outcome    text,
  CONSTRAINT joins_condition CHECK (condition IN ('succeeded', 'ended')),
  CONSTRAINT joins_outcome CHECK (outcome IN ('started', 'moot')),
  CONSTRAINT joins_closed CHECK ((closed_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX joins_open ON {schema}.joins (job_id) WHERE closed_at IS NULL;

-- What a set waits for. seen: the state in which the member was found to have met the condition; it counts from then on, whatever becomes of it.
CREATE TABLE {schema}.join_members (
  join_id uuid NOT NULL,
  job_id  uuid NOT NULL,
  seen    text,
  PRIMARY KEY (join_id, job_id)
);
CREATE INDEX join_members_awaited ON {schema}.join_members (join_id, job_id) WHERE seen IS NULL;
-- The other way round, for whoever purges: does any set wait for this job?
CREATE INDEX join_members_job ON {schema}.join_members (job_id) WHERE seen IS NULL;

-- The writer's functions as they were, with one option more: the job that a job follows from, after the correlation id.
CREATE FUNCTION {schema}.write_jobs_2(p_jobs text, p_keys_free boolean) RETURNS integer
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
  v_parent_id uuid := v_options[7]::uuid;
  v_written integer;
BEGIN
  IF p_keys_free THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads) AS i(id, kind, key, version, queue, digest, payload);
  ELSE
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now
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

CREATE FUNCTION {schema}.enqueue_new_2(p_jobs text) RETURNS boolean
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  PERFORM {schema}.write_jobs_2(p_jobs, true);
  RETURN true;
EXCEPTION WHEN unique_violation OR serialization_failure THEN
  RETURN false;
END
$function$;

CREATE FUNCTION {schema}.enqueue_2(p_jobs text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_columns text[];
  v_ids uuid[];
  v_job text;
  v_taken integer;
BEGIN
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
    v_taken := {schema}.write_jobs_2(p_jobs, false);
  ELSE
    BEGIN
      v_taken := {schema}.write_jobs_2(p_jobs, false);
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
        PERFORM {schema}.write_jobs_2(v_job, false);
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

CREATE FUNCTION {schema}.enqueue_one_2(p_job text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_job text[] := string_to_array(replace(p_job, E'\x1e', E'\x1f'), E'\x1f', '');
  v_now timestamptz := {schema}.clock();
BEGIN
  IF cardinality(v_job) = 14 AND current_setting('transaction_isolation') = 'read committed' THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at)
    VALUES (v_job[8]::uuid, v_job[1], v_job[9], v_job[10], v_job[11]::integer, v_job[12], v_job[2]::smallint, v_job[14]::jsonb,
      decode(v_job[13], 'hex'), coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz, v_job[5]::integer, v_job[6],
      v_job[7]::uuid, v_now)
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING;
    IF FOUND THEN
      INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
      VALUES (v_job[8]::uuid, v_job[12], v_job[1], coalesce(v_job[3]::timestamptz, v_now) - v_job[2]::smallint * interval '1 minute',
        coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz);
      RETURN NULL;
    END IF;
  END IF;
  RETURN {schema}.enqueue_2(p_job);
END
$function$;
