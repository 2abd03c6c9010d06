-- Purpose: owe something again to jobs that have not ended and have no outbox row. What runs gets a row whose lease has just ended, so that its worker
--   may still finish and else the attempt is taken back in the usual way.
-- Transition: none (outbox row inserted; a job that has ended meanwhile is left alone)
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: job rows in id order, SKIP LOCKED; there is no outbox row to lock before them, and one that appears meanwhile stays. Index: both primary keys.
WITH held AS MATERIALIZED (
  SELECT j.id, j.state, j.queue, j.tenant, j.priority, j.run_at, j.deadline_at, j.lease_token, j.kind || ':' || j.subject AS subject,
    j.limit_group, j.limit_key, j.limit_max, j.limit_place
  FROM {schema}.jobs AS j
  WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.state IN ('ready', 'running')
    AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.job_id = j.id)
  ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), mended AS (
  INSERT INTO {schema}.outbox (job_id, phase, queue, tenant, order_key, due_at, deadline_at, lease_token, lease_expires_at, last_error, subject,
    limit_group, limit_key, limit_max, limit_place)
  SELECT h.id, CASE h.state WHEN 'running' THEN 'leased' ELSE 'owed' END, h.queue, h.tenant, h.run_at - h.priority * interval '1 minute',
    CASE h.state WHEN 'running' THEN n.now ELSE h.run_at END, h.deadline_at, h.lease_token, CASE h.state WHEN 'running' THEN n.now END,
    'the row was lost', h.subject, h.limit_group, h.limit_key, h.limit_max, h.limit_place
  FROM held AS h, (SELECT {schema}.clock() AS now) AS n
  ON CONFLICT (job_id) DO NOTHING
  RETURNING job_id
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
