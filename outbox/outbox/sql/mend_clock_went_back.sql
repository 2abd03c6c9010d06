-- Purpose: make jobs due now which wait for an instant that the database's clock had reached before it was set back. When they were submitted, and when
--   their attempts ended, stays as it was written.
-- Transition: none (ready stays ready; run_at becomes now)
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: outbox rows in id order, SKIP LOCKED; then their job rows, SKIP LOCKED. Index: both primary keys; attempts by job and number.
WITH held AS MATERIALIZED (
  SELECT o.job_id, o.phase FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), told AS MATERIALIZED (
  SELECT j.id, j.state, j.priority, j.run_at, j.created_at, j.attempt_count
  FROM {schema}.jobs AS j
  WHERE j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h WHERE h.phase = 'owed')) AND j.state = 'ready'
  ORDER BY j.id FOR UPDATE SKIP LOCKED
), ahead AS MATERIALIZED (
  SELECT t.id, t.priority, t.run_at, n.now
  FROM told AS t, (SELECT {schema}.clock() AS now) AS n
  WHERE t.run_at > n.now AND (t.run_at = t.created_at OR EXISTS (SELECT 1 FROM {schema}.attempts AS a
    WHERE a.job_id = t.id AND a.number = t.attempt_count AND a.ended_at > n.now AND t.run_at >= a.ended_at))
), owed AS (
  UPDATE {schema}.outbox AS o
  SET due_at = a.now, order_key = a.now - a.priority * interval '1 minute', last_error = 'the clock went back'
  FROM ahead AS a
  WHERE o.job_id = a.id AND o.job_id = ANY (ARRAY(SELECT v.id FROM ahead AS v))
  RETURNING o.job_id
), mended AS (
  UPDATE {schema}.jobs AS j
  SET run_at = a.now
  FROM ahead AS a JOIN owed AS w ON w.job_id = a.id
  WHERE j.id = a.id AND j.id = ANY (ARRAY(SELECT v.id FROM ahead AS v))
  RETURNING j.id AS job_id, a.run_at AS was
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text),
    jsonb_build_object('check', CAST(:code AS text), 'run_at_was', m.was)
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
