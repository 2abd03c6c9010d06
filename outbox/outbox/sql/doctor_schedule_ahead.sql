-- Purpose: find schedules that stand still until an instant to which the database's clock had come before it was set back: all has been seen to up to there, or
--   a turn has failed there and is tried again after it. No pause after a failed turn is longer than an hour.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: none: all schedules are read.
SELECT s.name AS subject, CASE WHEN s.after_at > n.until THEN 'makes nothing up to ' || s.after_at ELSE 'is tried again at ' || s.wake_at END
  || ', by a clock that now says ' || n.now AS detail
FROM {schema}.schedules AS s,
  (SELECT c.now, c.now + make_interval(secs => CAST(:grace_s AS float8)) AS until FROM (SELECT {schema}.clock() AS now) AS c) AS n
WHERE s.disabled_at IS NULL AND (s.after_at > n.until OR s.failed_turns > 0 AND s.wake_at > n.until + interval '1 hour')
ORDER BY s.name LIMIT CAST(:batch AS integer)
