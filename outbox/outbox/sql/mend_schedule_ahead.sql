-- Purpose: have schedules go on from now whose place is an instant that the database's clock has not reached, since it was set back. An occurrence whose job
--   is there already stays that job, by its key.
-- Transition: none
-- Parameters: names, code (the check's), actor, reason
-- Locks: the schedules' rows in the order of their names, SKIP LOCKED. Index: schedules_pkey.
WITH held AS MATERIALIZED (
  SELECT s.name, s.after_at FROM {schema}.schedules AS s
  WHERE s.name = ANY (CAST(:names AS text[])) ORDER BY s.name FOR UPDATE SKIP LOCKED
), mended AS (
  UPDATE {schema}.schedules AS s
  SET after_at = n.now, next_at = NULL, wake_at = '-infinity', failed_turns = 0, updated_at = n.now, revision = s.revision + 1
  FROM held AS h, (SELECT {schema}.clock() AS now) AS n
  WHERE s.name = h.name AND h.after_at > n.now
  RETURNING s.name, h.after_at AS was
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.name, CAST(:reason AS text),
    jsonb_build_object('check', CAST(:code AS text), 'after_at_was', m.was)
  FROM mended AS m
  RETURNING id
)
SELECT m.name FROM mended AS m
