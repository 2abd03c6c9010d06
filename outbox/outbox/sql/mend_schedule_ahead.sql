-- Purpose: have schedules go on from now whose place is an instant that the database's clock has not reached, since it was set back, and look at once at those that
--   would be looked at only then: these keep a place that has been reached. An occurrence whose job is there already stays that job, by its key.
-- Transition: none
-- Parameters: names, code (the check's), actor, reason
-- Locks: the schedules' rows in the order of their names, SKIP LOCKED. Index: schedules_pkey.
WITH held AS MATERIALIZED (
  SELECT s.name, s.after_at, s.next_at, s.wake_at, s.failed_turns FROM {schema}.schedules AS s
  WHERE s.name = ANY (CAST(:names AS text[])) ORDER BY s.name FOR UPDATE SKIP LOCKED
), mended AS (
  UPDATE {schema}.schedules AS s
  SET after_at = CASE WHEN h.after_at > n.now THEN n.now ELSE h.after_at END, next_at = NULL, wake_at = '-infinity', failed_turns = 0,
    broken_at = CASE WHEN s.broken_at > n.now THEN n.now ELSE s.broken_at END, updated_at = n.now, revision = s.revision + 1
  FROM held AS h, (SELECT {schema}.clock() AS now) AS n
  WHERE s.name = h.name AND (h.after_at > n.now OR h.wake_at < 'infinity'
    AND h.wake_at > CASE WHEN h.failed_turns > 0 THEN n.now + interval '1 hour' ELSE greatest(n.now, h.next_at) END)
  RETURNING s.name, h.after_at AS was, h.wake_at AS woke
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.name, CAST(:reason AS text),
    jsonb_build_object('check', CAST(:code AS text), 'after_at_was', m.was, 'wake_at_was', m.woke)
  FROM mended AS m
  RETURNING id
)
SELECT m.name FROM mended AS m
