-- Purpose: end jobs that have not ended, with who and why, and with what had happened for each by then. A waiting job never runs; a running one
--   loses its lease, so that whichever of cancel and completion commits first wins and the other changes nothing.
-- Transition: cancel: ready | running -> cancelled (outbox row deleted)
-- Parameters: jobs (JSON text: objects with job_id and, from read_traces.sql, after or null), actor, reason, detail (JSON text, for the audit)
-- Locks: the outbox rows in id order, which an earlier statement of the transaction holds already, so that this one's snapshot shows all that
--   was written before; then the job rows. The clock is read behind the lock: a claim that was waited for came first.
-- Index: the primary keys of all tables.
WITH asked AS MATERIALIZED (
  SELECT a.job_id, a.after FROM jsonb_to_recordset(CAST(CAST(:jobs AS text) AS jsonb)) AS a(job_id uuid, after jsonb)
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT a.job_id FROM asked AS a)) ORDER BY o.job_id FOR UPDATE
), gone AS (
  -- Not that of a job in a state that only a newer release knows.
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
    AND (SELECT j.state IN ('ready', 'running') FROM {schema}.jobs AS j WHERE j.id = o.job_id)
  RETURNING o.job_id, o.lease_token, o.released_at, o.progress,
    {schema}.clock() AS now
), cancelled AS (
  UPDATE {schema}.jobs AS j
  SET state = 'cancelled', lease_token = NULL, finished_at = g.now,
    cancel_requested_at = g.now, cancel_requested_by = CAST(:actor AS text), cancel_reason = CAST(:reason AS text),
    cancelled_after = coalesce(nullif((SELECT a.after FROM asked AS a WHERE a.job_id = g.job_id LIMIT 1), 'null'), jsonb_build_object(
      {happened}))
  FROM gone AS g
  WHERE j.id = g.job_id AND j.state IN ('ready', 'running')
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at, j.cancelled_after, g.now
), history AS (
  INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
    ended_at, outcome, error_class, error_code, error_message, effects_touched, progress)
  SELECT c.id, c.attempt_count, g.lease_token, c.lease_owner, c.lease_host, c.lease_worker_version, c.lease_handler_version, g.released_at,
    c.lease_started_at, c.now, 'cancelled', 'cancelled', 'cancelled', CAST(:reason AS text),
    (SELECT (array_agg(x.name ORDER BY x.name))[1:100] || CASE WHEN count(*) > 100 THEN ARRAY['and ' || (count(*) - 100) || ' more'] END
      FROM {schema}.effects AS x WHERE x.job_id = c.id AND x.attempt = c.attempt_count), g.progress
  FROM cancelled AS c JOIN gone AS g ON g.job_id = c.id WHERE g.lease_token IS NOT NULL
  -- A number that is taken (a row that was written by hand) must not keep its whole batch from being cancelled.
  ON CONFLICT (job_id, number) DO NOTHING
  RETURNING job_id
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT c.now, CAST(:actor AS text), 'job.cancel', c.id::text, CAST(:reason AS text),
    CAST(CAST(:detail AS text) AS jsonb) || jsonb_build_object('after', c.cancelled_after)
  FROM cancelled AS c
  RETURNING id
)
SELECT c.id AS job_id FROM cancelled AS c ORDER BY c.id
