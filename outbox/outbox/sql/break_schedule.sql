-- Purpose: have a schedule whose turn has failed wait, longer each time, so that others get theirs, and mark it as broken, unless it is only held up. Where
--   its row has changed since, or another relay's turn went well, nothing changes. The count has an end, since an overflow here would stop all schedules.
-- Transition: none
-- Parameters: name, seen (which version of the row the turn had found), pause_s, error, broken (false: it is held up)
-- Locks: the schedule's row, SKIP LOCKED: who holds it sees to it. Index: schedules_pkey.
UPDATE {schema}.schedules AS s
SET failed_turns = least(s.failed_turns, 1000000) + 1, broken_at = CASE WHEN CAST(:broken AS boolean) THEN coalesce(s.broken_at, c.now) ELSE s.broken_at END, last_error = CAST(:error AS text),
  wake_at = c.now + make_interval(secs => CAST(:pause_s AS float8))
FROM (
  SELECT h.name FROM {schema}.schedules AS h
  WHERE h.name = CAST(:name AS text) AND h.xmin = CAST(CAST(:seen AS text) AS xid)
  FOR UPDATE SKIP LOCKED
) AS held CROSS JOIN (SELECT {schema}.clock() AS now) AS c
WHERE s.name = held.name
RETURNING s.name
