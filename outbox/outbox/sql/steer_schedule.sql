-- Purpose: pause, resume or disable a schedule. What would have come while it was paused or disabled is not made up for; what had come
--   before has had its turn.
-- Transition: none
-- Parameters: name, action (pause | resume | disable), since (from when that holds)
-- Locks: the schedule's row, which the caller holds. Index: schedules_pkey.
UPDATE {schema}.schedules AS s
SET paused = CASE CAST(:action AS text) WHEN 'pause' THEN true WHEN 'resume' THEN false ELSE s.paused END,
  disabled_at = CASE WHEN CAST(:action AS text) = 'disable' THEN c.now ELSE s.disabled_at END,
  after_at = CASE WHEN CAST(:action AS text) = 'resume' THEN greatest(s.after_at, CAST(:since AS timestamptz)) ELSE s.after_at END,
  next_at = CASE WHEN CAST(:action AS text) = 'pause' THEN s.next_at END,
  wake_at = '-infinity', failed_turns = 0, updated_at = c.now, revision = s.revision + 1
FROM (SELECT {schema}.clock() AS now) AS c
WHERE s.name = CAST(:name AS text)
RETURNING s.name
