-- Purpose: delete outbox rows to which nothing is owed: their job has ended or is not there.
-- Transition: none (outbox row deleted)
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: outbox rows in id order, SKIP LOCKED; then their job rows, SKIP LOCKED, so that none is redriven meanwhile. Index: both primary keys.
WITH held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), ended AS MATERIALIZED (
  SELECT j.id FROM {schema}.jobs AS j
  WHERE j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND j.state IN ('succeeded', 'failed', 'cancelled')
  ORDER BY j.id FOR UPDATE SKIP LOCKED
), mended AS (
  DELETE FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND (o.job_id = ANY (ARRAY(SELECT e.id FROM ended AS e))
    OR NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = o.job_id))
  RETURNING o.job_id
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
