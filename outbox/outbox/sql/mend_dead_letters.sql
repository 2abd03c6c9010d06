-- Purpose: write the dead letters that failed jobs lack, and delete those of jobs that have not failed.
-- Transition: none
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: job rows in id order, SKIP LOCKED, so that none fails or is redriven meanwhile; then their letters. Index: both primary keys.
WITH held AS MATERIALIZED (
  SELECT j.id, j.state, j.kind, j.queue, j.tenant, j.last_error_code, j.finished_at,
    CASE WHEN j.limit_blocks THEN j.limit_group END AS limit_group, CASE WHEN j.limit_blocks THEN j.limit_key END AS limit_key,
    CASE WHEN j.limit_blocks THEN j.limit_place END AS limit_place
  FROM {schema}.jobs AS j
  WHERE j.id = ANY (CAST(:job_ids AS uuid[])) ORDER BY j.id FOR UPDATE SKIP LOCKED
), written AS (
  INSERT INTO {schema}.dead_letters (job_id, kind, queue, tenant, code, failed_at, limit_group, limit_key, limit_place)
  SELECT h.id, h.kind, h.queue, h.tenant, coalesce(h.last_error_code, 'unknown'), h.finished_at, h.limit_group, h.limit_key, h.limit_place
  FROM held AS h WHERE h.state = 'failed'
  ON CONFLICT (job_id) DO NOTHING
  RETURNING job_id
), dropped AS (
  DELETE FROM {schema}.dead_letters AS d
  WHERE d.job_id = ANY (CAST(:job_ids AS uuid[])) AND (d.job_id = ANY (ARRAY(SELECT h.id FROM held AS h WHERE h.state IN ('ready', 'running', 'succeeded', 'cancelled')))
    OR NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = d.job_id))
  RETURNING d.job_id
), mended AS (
  SELECT w.job_id FROM written AS w UNION ALL SELECT p.job_id FROM dropped AS p
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
