-- Purpose: delete checkpoints whose job is not there: nobody can ever read them.
-- Transition: none
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: the rows that it deletes. Index: primary keys.
WITH gone AS (
  DELETE FROM {schema}.checkpoints AS c
  WHERE c.job_id = ANY (CAST(:job_ids AS uuid[])) AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = c.job_id)
  RETURNING c.job_id
), mended AS (
  SELECT DISTINCT g.job_id FROM gone AS g
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
