-- The trace context of whoever submits a job, as JSON, in one option more: the eighth. A writer of a release before sends seven, and its jobs have none. The three
-- functions that write jobs are as they were but for that, so newer and older writers go on beside each other.

CREATE OR REPLACE FUNCTION {schema}.write_jobs_2(p_jobs text, p_keys_free boolean) RETURNS integer
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
  v_trace jsonb := v_options[8]::jsonb;
  v_written integer;
BEGIN
  IF p_keys_free THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, trace_context)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, v_trace
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads) AS i(id, kind, key, version, queue, digest, payload);
  ELSE
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, trace_context)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, v_trace
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

CREATE OR REPLACE FUNCTION {schema}.write_jobs_4(p_jobs text, p_keys_free boolean, p_place bigint) RETURNS integer
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
  v_limit_groups text[] := string_to_array(v_columns[9], E'\x1f', '');
  v_limit_keys text[] := string_to_array(v_columns[10], E'\x1f', '');
  v_limit_maxima integer[] := string_to_array(v_columns[11], E'\x1f', '')::integer[];
  v_limit_rules text[] := string_to_array(v_columns[12], E'\x1f', '');
  v_tenant text := v_options[1];
  v_priority smallint := v_options[2]::smallint;
  v_now timestamptz := {schema}.clock();
  v_run_at timestamptz := coalesce(v_options[3]::timestamptz, v_now);
  v_deadline_at timestamptz := v_options[4]::timestamptz;
  v_max_attempts integer := v_options[5]::integer;
  v_parent_id uuid := v_options[7]::uuid;
  v_trace jsonb := v_options[8]::jsonb;
  v_written integer;
BEGIN
  IF p_keys_free THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, limit_group, limit_key, limit_max, limit_place, limit_blocks, trace_context)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, i.limit_group, i.limit_key, i.limit_max,
      CASE WHEN i.limit_rule IS NOT NULL THEN p_place END, CASE WHEN i.limit_rule = 'b' THEN true END, v_trace
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads, v_limit_groups, v_limit_keys, v_limit_maxima, v_limit_rules)
      AS i(id, kind, key, version, queue, digest, payload, limit_group, limit_key, limit_max, limit_rule);
  ELSE
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, limit_group, limit_key, limit_max, limit_place, limit_blocks, trace_context)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, i.limit_group, i.limit_key, i.limit_max,
      CASE WHEN i.limit_rule IS NOT NULL THEN p_place END, CASE WHEN i.limit_rule = 'b' THEN true END, v_trace
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads, v_limit_groups, v_limit_keys, v_limit_maxima, v_limit_rules)
      AS i(id, kind, key, version, queue, digest, payload, limit_group, limit_key, limit_max, limit_rule)
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING;
  END IF;
  GET DIAGNOSTICS v_written = ROW_COUNT;
  IF v_written > 0 THEN
    INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at, limit_group, limit_key, limit_max, limit_place)
    SELECT i.id, i.queue, v_tenant, v_run_at - v_priority * interval '1 minute', v_run_at, v_deadline_at, i.limit_group, i.limit_key, i.limit_max,
      CASE WHEN i.limit_rule IS NOT NULL THEN p_place END
    FROM unnest(v_ids, v_queues, v_limit_groups, v_limit_keys, v_limit_maxima, v_limit_rules)
      AS i(id, queue, limit_group, limit_key, limit_max, limit_rule)
    -- Not asked where all were written; a subquery, since no plan can turn it into a join.
    WHERE CASE WHEN v_written = cardinality(v_ids) THEN true ELSE (SELECT true FROM {schema}.jobs AS j WHERE j.id = i.id) END;
  END IF;
  RETURN cardinality(v_ids) - v_written;
END
$function$;

-- One job: its values stand one place further where there is a trace.
CREATE OR REPLACE FUNCTION {schema}.enqueue_one_2(p_job text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_job text[] := string_to_array(replace(p_job, E'\x1e', E'\x1f'), E'\x1f', '');
  v_now timestamptz := {schema}.clock();
  v_more integer := cardinality(v_job) - 14;
BEGIN
  IF v_more IN (0, 1) AND current_setting('transaction_isolation') = 'read committed' THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, trace_context)
    VALUES (v_job[8 + v_more]::uuid, v_job[1], v_job[9 + v_more], v_job[10 + v_more], v_job[11 + v_more]::integer, v_job[12 + v_more], v_job[2]::smallint,
      v_job[14 + v_more]::jsonb, decode(v_job[13 + v_more], 'hex'), coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz, v_job[5]::integer, v_job[6],
      v_job[7]::uuid, v_now, CASE WHEN v_more = 1 THEN v_job[8]::jsonb END)
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING;
    IF FOUND THEN
      INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
      VALUES (v_job[8 + v_more]::uuid, v_job[12 + v_more], v_job[1], coalesce(v_job[3]::timestamptz, v_now) - v_job[2]::smallint * interval '1 minute',
        coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz);
      RETURN NULL;
    END IF;
  END IF;
  RETURN {schema}.enqueue_2(p_job);
END
$function$;
