-- Concurrency keys: of the jobs that share one, so many run at once. Writers and workers of the releases before go on beside it.

-- limit_group and limit_key, with the tenant: the key. limit_max: how many of its jobs there may be under way when this one starts, itself included.
-- limit_place: of jobs that run one after the other, when it was submitted. limit_blocks: once it has failed, those behind it wait for a person.
-- All NULL: the job has no key.
ALTER TABLE {schema}.jobs
  ADD COLUMN limit_group text,
  ADD COLUMN limit_key text,
  ADD COLUMN limit_max integer,
  ADD COLUMN limit_place bigint,
  ADD COLUMN limit_blocks boolean;

CREATE SEQUENCE {schema}.limit_places;
-- Whoever writes jobs needs no right of its own to the sequence.
CREATE FUNCTION {schema}.next_limit_place() RETURNS bigint
  LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $function$
SELECT pg_catalog.nextval((pg_catalog.quote_ident({schema_literal}) || '.limit_places')::regclass)
$function$;

-- The writer's functions as they were, for jobs of which at least one has a key: five columns more, of groups, keys, numbers, rules (s or b: they run
-- one after the other, and a failed one is skipped or blocks), all empty of jobs without a key; and of when they were submitted, empty: now. Jobs of one
-- call share that place, and go by their ids, which ascend.
CREATE FUNCTION {schema}.write_jobs_4(p_jobs text, p_keys_free boolean, p_place bigint) RETURNS integer
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
  v_written integer;
BEGIN
  IF p_keys_free THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, limit_group, limit_key, limit_max, limit_place, limit_blocks)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, i.limit_group, i.limit_key, i.limit_max,
      CASE WHEN i.limit_rule IS NOT NULL THEN p_place END, CASE WHEN i.limit_rule = 'b' THEN true END
    FROM unnest(v_ids, v_kinds, v_keys, v_versions, v_queues, v_digests, v_payloads, v_limit_groups, v_limit_keys, v_limit_maxima, v_limit_rules)
      AS i(id, kind, key, version, queue, digest, payload, limit_group, limit_key, limit_max, limit_rule);
  ELSE
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, parent_id, created_at, limit_group, limit_key, limit_max, limit_place, limit_blocks)
    SELECT i.id, v_tenant, i.kind, i.key, i.version, i.queue, v_priority, i.payload::jsonb, decode(i.digest, 'hex'), v_run_at,
      v_deadline_at, v_max_attempts, v_options[6], v_parent_id, v_now, i.limit_group, i.limit_key, i.limit_max,
      CASE WHEN i.limit_rule IS NOT NULL THEN p_place END, CASE WHEN i.limit_rule = 'b' THEN true END
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

-- NULL: written; an empty text: not written, since a key is taken.
CREATE FUNCTION {schema}.enqueue_new_4(p_jobs text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_held_up text := {schema}.bounded_1(p_jobs, p_bounded);
BEGIN
  IF v_held_up IS NOT NULL THEN
    RETURN v_held_up;
  END IF;
  PERFORM {schema}.write_jobs_4(p_jobs, true, coalesce(nullif(split_part(split_part(p_jobs, E'\x1e', 13), E'\x1f', 1), '')::bigint, {schema}.next_limit_place()));
  RETURN NULL;
EXCEPTION WHEN unique_violation OR serialization_failure THEN
  RETURN '';
END
$function$;

CREATE FUNCTION {schema}.enqueue_4(p_jobs text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_held_up text := {schema}.bounded_1(p_jobs, p_bounded);
  v_place bigint;
  v_columns text[];
  v_ids uuid[];
  v_job text;
  v_taken integer;
BEGIN
  IF v_held_up IS NOT NULL THEN
    RETURN v_held_up;
  END IF;
  v_place := coalesce(nullif(split_part(split_part(p_jobs, E'\x1e', 13), E'\x1f', 1), '')::bigint, {schema}.next_limit_place());
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
    v_taken := {schema}.write_jobs_4(p_jobs, false, v_place);
  ELSE
    BEGIN
      v_taken := {schema}.write_jobs_4(p_jobs, false, v_place);
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
        PERFORM {schema}.write_jobs_4(v_job, false, v_place);
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

-- As it was, for jobs with keys, too.
CREATE OR REPLACE FUNCTION {schema}.enqueue_subjects_1(p_jobs text, p_bounded text, p_subjects text, p_supersedes boolean, p_most integer) RETURNS text
  LANGUAGE plpgsql VOLATILE SET enable_seqscan = off
AS $function$
DECLARE
  v_columns text[] := string_to_array(p_jobs, E'\x1e');
  v_tenant text := split_part(v_columns[1], E'\x1f', 1);
  v_ids uuid[] := string_to_array(v_columns[2], E'\x1f')::uuid[];
  v_kinds text[] := string_to_array(v_columns[3], E'\x1f');
  v_subjects text[] := string_to_array(p_subjects, E'\x1f');
  v_marks text[];
  v_answer text;
  v_new uuid[];
  v_crowded text;
  v_held json;
BEGIN
  IF p_supersedes AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RETURN E'\x1c' || json_build_object('level', current_setting('transaction_isolation'));
  END IF;
  SELECT array_agg(CASE WHEN i.subject <> '' THEN i.kind || ':' || i.subject END ORDER BY i.n) INTO v_marks
  FROM unnest(v_kinds, v_subjects) WITH ORDINALITY AS i(kind, subject, n);
  IF p_supersedes THEN
    SELECT m.mark INTO v_crowded FROM (SELECT DISTINCT u.mark FROM unnest(v_marks) AS u(mark)) AS m
    WHERE (SELECT count(*) FROM (
      SELECT 1 FROM {schema}.outbox AS o WHERE o.tenant = v_tenant AND o.subject = m.mark AND o.subject IS NOT NULL AND o.phase IN ('owed', 'released')
      LIMIT p_most + 1) AS w) > p_most
    LIMIT 1;
    IF v_crowded IS NOT NULL THEN
      RETURN E'\x1c' || json_build_object('subject', v_crowded);
    END IF;
  END IF;
  v_answer := CASE WHEN cardinality(v_columns) > 8 THEN {schema}.enqueue_4(p_jobs, p_bounded) ELSE {schema}.enqueue_3(p_jobs, p_bounded) END;
  IF v_answer ~ E'^[\x1d\x1e]' THEN
    RETURN v_answer;
  END IF;
  WITH written AS (
    UPDATE {schema}.jobs AS j SET subject = v_subjects[array_position(v_ids, j.id)]
    WHERE j.id = ANY (v_ids) AND v_subjects[array_position(v_ids, j.id)] <> '' AND j.subject IS NULL
    RETURNING j.id
  )
  SELECT array_agg(w.id) INTO v_new FROM written AS w;
  IF v_new IS NULL THEN
    RETURN v_answer;
  END IF;
  UPDATE {schema}.outbox AS o SET subject = v_marks[array_position(v_ids, o.job_id)] WHERE o.job_id = ANY (v_new);
  IF NOT p_supersedes THEN
    RETURN v_answer;
  END IF;
  INSERT INTO {schema}.subject_turns (tenant, subject)
  SELECT v_tenant, m.mark FROM (SELECT DISTINCT v_marks[array_position(v_ids, n.id)] AS mark FROM unnest(v_new) AS n(id)) AS m ORDER BY m.mark COLLATE "C";
  DELETE FROM {schema}.subject_turns AS t WHERE t.tenant = v_tenant AND t.subject = ANY (v_marks);
  -- A statement of its own, so that it sees what those who had their turn before have committed.
  WITH stands AS MATERIALIZED (
    SELECT DISTINCT ON (v_marks[array_position(v_ids, n.id)]) v_marks[array_position(v_ids, n.id)] AS mark, n.id
    FROM unnest(v_new) AS n(id) ORDER BY v_marks[array_position(v_ids, n.id)], n.id DESC
  ), held AS MATERIALIZED (
    SELECT o.job_id, o.subject FROM {schema}.outbox AS o
    WHERE o.tenant = v_tenant AND o.subject = ANY (ARRAY(SELECT s.mark FROM stands AS s)) AND o.subject IS NOT NULL
      AND o.phase IN ('owed', 'released') AND o.job_id <> ALL (ARRAY(SELECT s.id FROM stands AS s))
    ORDER BY o.job_id FOR UPDATE
  )
  SELECT json_agg(json_build_array(h.job_id, s.id) ORDER BY h.job_id) INTO v_held FROM held AS h JOIN stands AS s ON s.mark = h.subject;
  IF v_held IS NULL THEN
    RETURN v_answer;
  END IF;
  RETURN E'\x1c' || json_build_object('written', v_answer, 'held', v_held);
END
$function$;
