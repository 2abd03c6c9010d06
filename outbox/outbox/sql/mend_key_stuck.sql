-- Purpose: put jobs back in line that are set aside for their concurrency keys, where these have room: each key's first, as the sweep does.
-- Transition: none (the phase stays owed)
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: outbox rows, SKIP LOCKED (see {schema}.free_key). Index: primary key, and the key's own.
WITH asked AS MATERIALIZED (
  SELECT o.job_id, o.limit_key, o.limit_group, o.tenant FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND o.phase = 'owed' AND coalesce(o.last_error = 'waits for its key', false)
  ORDER BY o.job_id
), mended AS MATERIALIZED (
  SELECT a.job_id FROM asked AS a WHERE {schema}.free_key(a.tenant, a.limit_group, a.limit_key) > 0
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
