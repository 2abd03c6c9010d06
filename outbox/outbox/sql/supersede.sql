-- Purpose: end waiting jobs in whose place a newer one of their subject has come, as a cancel does, with the newer one's id. One with an effect of which
--   nobody knows whether it has happened goes on, since only its own next attempt finds that out. The job's own row tells all of it; the audit is of what
--   people do, and would grow with every submission.
-- Transition: supersede: ready -> cancelled (outbox row deleted)
-- Parameters: jobs (JSON text: pairs of a job and the newer one), actor, reason (to which the newer one's id is added)
-- Locks: the outbox rows in id order, which enqueue_subjects.sql holds already, so that this one's snapshot shows all that was written before; then the
--   job rows. Index: the primary keys of all tables.
WITH asked AS MATERIALIZED (
  SELECT CAST(a.value ->> 0 AS uuid) AS job_id, CAST(a.value ->> 1 AS uuid) AS newer FROM jsonb_array_elements(CAST(CAST(:jobs AS text) AS jsonb)) AS a(value)
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT a.job_id FROM asked AS a)) AND coalesce(o.phase IN ('owed', 'released'), false)
    AND (SELECT j.state = 'ready' FROM {schema}.jobs AS j WHERE j.id = o.job_id)
    AND (SELECT true FROM {schema}.effects AS e WHERE e.job_id = o.job_id AND e.state IN ('pending', 'uncertain') LIMIT 1) IS NULL
  RETURNING o.job_id, {schema}.clock() AS now
), superseded AS (
  UPDATE {schema}.jobs AS j
  SET state = 'cancelled', finished_at = g.now, cancel_requested_at = g.now, cancel_requested_by = CAST(:actor AS text),
    cancel_reason = CAST(:reason AS text) || ' ' || (SELECT a.newer FROM asked AS a WHERE a.job_id = g.job_id LIMIT 1),
    cancelled_after = jsonb_build_object(
      {happened},
      'superseded_by', (SELECT a.newer FROM asked AS a WHERE a.job_id = g.job_id LIMIT 1))
  FROM gone AS g
  WHERE j.id = g.job_id AND j.state = 'ready'
  RETURNING j.id, j.run_at, j.cancelled_after
)
SELECT s.id AS job_id, CAST(s.cancelled_after ->> 'superseded_by' AS uuid) AS newer, s.run_at FROM superseded AS s ORDER BY s.id
