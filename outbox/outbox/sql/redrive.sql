-- Purpose: put jobs of a redrive back to work, each only if it is still as it was when the redrive was decided. Identity, history and errors stay;
--   attempts go on counting, and a new budget begins. A patch leaves the digest: it is of what was submitted under the key, and whoever submits
--   that once more still finds this job. What can't be put back is refused with the reason, and stays as it is.
-- Transition: redrive: failed | cancelled -> ready (outbox row inserted, owed)
-- Parameters: operation_id, job_ids, patient (false: jobs that somebody holds are left for the next turn)
-- Locks: the job rows in id order, waiting or SKIP LOCKED; an ended job has no outbox row, and the new one is nobody else's yet. Then its dead
--   letter, waiting, so that of a redrive and a discard one comes first; then its items. The clock is read behind the jobs' locks.
--   Index: primary keys, redrive_items_job.
WITH named AS MATERIALIZED (
  SELECT i.job_id, i.attempt_count, i.finished_at, i.new_payload, r.id AS operation_id, r.by_ids, r.include_uncertain,
    r.deadline_at, r.actor, r.reason
  FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
  WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.job_id = ANY (CAST(:job_ids AS uuid[])) AND i.state = 'waiting'
), waited AS MATERIALIZED (
  SELECT j.* FROM {schema}.jobs AS j
  WHERE CAST(:patient AS boolean) AND j.id = ANY (ARRAY(SELECT n.job_id FROM named AS n)) ORDER BY j.id FOR UPDATE
), tried AS MATERIALIZED (
  SELECT j.* FROM {schema}.jobs AS j
  WHERE NOT CAST(:patient AS boolean) AND j.id = ANY (ARRAY(SELECT n.job_id FROM named AS n)) ORDER BY j.id FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
  SELECT * FROM waited UNION ALL SELECT * FROM tried
), fitting AS MATERIALIZED (
  SELECT q.*, j.state AS from_state, j.last_error_code, j.payload, j.cancel_requested_by, j.cancel_reason, j.cancelled_after ->> 'superseded_by' AS superseded_by, c.now,
    {redrive_refusal} AS refusal
  FROM named AS q LEFT JOIN held AS j ON j.id = q.job_id CROSS JOIN (SELECT {schema}.clock() AS now WHERE (SELECT count(*) FROM held) >= 0) AS c
    CROSS JOIN LATERAL (SELECT
      EXISTS (SELECT 1 FROM {schema}.effects AS e WHERE e.job_id = j.id AND e.state IN ('uncertain', 'pending')) AS has_open_effects,
      EXISTS (SELECT 1 FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
          CROSS JOIN LATERAL (SELECT j.id, j.attempt_count, j.finished_at) AS s
        WHERE i.job_id = j.id AND i.operation_id < q.operation_id AND {waits_for_redrive}) AS waits_elsewhere) AS s
  WHERE j.id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM {schema}.jobs AS k WHERE k.id = q.job_id)
), letters AS (
  -- Its condition is asked again of a letter that was waited for: one that a person has closed by then stays.
  DELETE FROM {schema}.dead_letters AS d
  WHERE d.job_id = ANY (ARRAY(SELECT f.job_id FROM fitting AS f WHERE f.refusal IS NULL))
    AND (d.discarded_at IS NULL OR (SELECT bool_or(f.by_ids) FROM fitting AS f))
  RETURNING d.job_id
), judged AS MATERIALIZED (
  SELECT f.operation_id, f.job_id, f.attempt_count, f.finished_at, f.new_payload, f.deadline_at, f.actor, f.reason, f.from_state,
    f.last_error_code, f.payload, f.cancel_requested_by, f.cancel_reason, f.superseded_by, f.now,
    CASE WHEN f.refusal IS NULL AND EXISTS (SELECT 1 FROM {schema}.dead_letters AS d WHERE d.job_id = f.job_id)
      AND f.job_id <> ALL (ARRAY(SELECT l.job_id FROM letters AS l)) THEN 'discarded' ELSE f.refusal END AS refusal
  FROM fitting AS f
), redriven AS (
  UPDATE {schema}.jobs AS j
  SET state = 'ready', run_at = g.now, finished_at = NULL, deadline_at = coalesce(g.deadline_at, j.deadline_at),
    budget_start = j.attempt_count, uncharged_attempts = j.attempt_count, failed_because = NULL, max_age_s = NULL,
    cancel_requested_at = NULL, cancel_requested_by = NULL, cancel_reason = NULL, cancelled_after = NULL,
    payload = coalesce(g.new_payload, j.payload)
  FROM judged AS g
  WHERE j.id = g.job_id AND g.refusal IS NULL AND j.state IN ('failed', 'cancelled')
  RETURNING j.id, j.queue, j.tenant, j.priority, j.run_at, j.deadline_at, j.kind, j.subject,
    j.limit_group, j.limit_key, j.limit_max, j.limit_place
), owed AS (
  INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at, deadline_at, subject, limit_group, limit_key, limit_max, limit_place)
  SELECT r.id, r.queue, r.tenant, r.run_at - r.priority * interval '1 minute', r.run_at, r.deadline_at, r.kind || ':' || r.subject,
    r.limit_group, r.limit_key, r.limit_max, r.limit_place
  FROM redriven AS r
  RETURNING job_id
), ticked AS (
  UPDATE {schema}.redrive_items AS i
  SET refusal = g.refusal, state = CASE WHEN g.refusal IS NULL THEN 'redriven' ELSE 'refused' END,
    redriven_at = CASE WHEN g.refusal IS NULL THEN g.now END,
    old_payload = CASE WHEN g.refusal IS NULL AND g.new_payload IS NOT NULL THEN g.payload END
  FROM judged AS g
  WHERE i.operation_id = g.operation_id AND i.job_id = g.job_id
  RETURNING i.job_id, i.kind, i.tenant, i.refusal
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT g.now, g.actor, 'job.redrive', g.job_id::text, g.reason, jsonb_strip_nulls(jsonb_build_object('operation', g.operation_id,
    'from', g.from_state, 'attempts', g.attempt_count, 'code', g.last_error_code, 'ended_at', g.finished_at,
    'cancelled_by', g.cancel_requested_by, 'cancel_reason', g.cancel_reason, 'superseded_by', g.superseded_by, 'patched', CASE WHEN g.new_payload IS NOT NULL THEN true END))
  FROM judged AS g JOIN redriven AS r ON r.id = g.job_id
  RETURNING id
)
SELECT t.job_id, t.kind, t.tenant, t.refusal FROM ticked AS t
