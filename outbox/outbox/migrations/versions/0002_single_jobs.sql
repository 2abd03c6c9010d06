-- The single job by plain inserts, and more room beside each job. Writers and workers of the first release go on beside both.

-- 25: while any transaction that has written runs longer than a job does, anywhere in the cluster, no dead version is cleared away in time,
-- and at 33 the third version of every other row went to another page and into every index (measured: 78 % heap-only; now all). It holds
-- for pages that are filled from now on, and takes a lock that neither reads nor writes wait for.
ALTER TABLE {schema}.jobs SET (fillfactor = 25);

-- Writes one job if its key is free and returns NULL, else says as enqueue_1 does who holds the key. It takes enqueue_1's text. Its two inserts
-- have constant shapes, so that each session plans them once; arrays, and the choice between a batch's statements, cost as much as the rows.
-- What is not usual is left to enqueue_1: a key that is taken, isolation levels that need a subtransaction, more than one job.
CREATE FUNCTION {schema}.enqueue_one_1(p_job text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_job text[] := string_to_array(replace(p_job, E'\x1e', E'\x1f'), E'\x1f', '');
  v_now timestamptz := {schema}.clock();
BEGIN
  IF cardinality(v_job) = 13 AND current_setting('transaction_isolation') = 'read committed' THEN
    INSERT INTO {schema}.jobs (id, tenant, kind, logical_key, version, queue, priority, payload, payload_digest, run_at, deadline_at,
      max_attempts, correlation_id, created_at)
    VALUES (v_job[7]::uuid, v_job[1], v_job[8], v_job[9], v_job[10]::integer, v_job[11], v_job[2]::smallint, v_job[13]::jsonb,
      decode(v_job[12], 'hex'), coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz, v_job[5]::integer, v_job[6], v_now)
    ON CONFLICT (tenant, kind, logical_key) DO NOTHING;
    IF FOUND THEN
      INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at)
      VALUES (v_job[7]::uuid, v_job[11], v_job[1], coalesce(v_job[3]::timestamptz, v_now) - v_job[2]::smallint * interval '1 minute',
        coalesce(v_job[3]::timestamptz, v_now), v_job[4]::timestamptz);
      RETURN NULL;
    END IF;
  END IF;
  RETURN {schema}.enqueue_1(p_job);
END
$function$;
