-- Purpose: close dead letters, with who and why. Their jobs stay failed, and a redrive that names one still takes it.
-- Transition: none
-- Parameters: job_ids, actor, reason
-- Locks: the dead letters in id order, waiting. A redrive holds the job first and then deletes the letter; nothing here waits for a job.
-- Index: dead_letters_pkey.
WITH open AS MATERIALIZED (
  SELECT d.job_id, d.code, d.failed_at FROM {schema}.dead_letters AS d
  WHERE d.job_id = ANY (CAST(:job_ids AS uuid[])) AND d.discarded_at IS NULL
  ORDER BY d.job_id FOR UPDATE
), discarded AS (
  UPDATE {schema}.dead_letters AS d
  SET discarded_at = n.now, discarded_by = CAST(:actor AS text), discard_reason = CAST(:reason AS text)
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE d.job_id = ANY (ARRAY(SELECT o.job_id FROM open AS o)) AND d.discarded_at IS NULL
  RETURNING d.job_id, d.code, d.failed_at, n.now
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT c.now, CAST(:actor AS text), 'dead.discard', c.job_id::text, CAST(:reason AS text),
    jsonb_build_object('code', c.code, 'failed_at', c.failed_at)
  FROM discarded AS c
  RETURNING id
)
SELECT c.job_id FROM discarded AS c
