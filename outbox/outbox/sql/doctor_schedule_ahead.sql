-- Purpose: find schedules that stand still until an instant to which the database's clock had come before it was set back: all has been seen to up to there, or
--   it is looked at again only there. No pause after a failed turn is longer than an hour, and no other goes beyond the next occurrence.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: none: all schedules are read.
SELECT s.name AS subject, CASE WHEN s.after_at > n.until THEN 'makes nothing up to ' || s.after_at ELSE 'is looked at again at ' || s.wake_at END
  || ', by a clock that now says ' || n.now AS detail
FROM {schema}.schedules AS s,
  (SELECT c.now, c.now + make_interval(secs => CAST(:grace_s AS float8)) AS until FROM (SELECT {schema}.clock() AS now) AS c) AS n
WHERE s.disabled_at IS NULL AND (s.after_at > n.until OR s.wake_at < 'infinity'
  AND s.wake_at > CASE WHEN s.failed_turns > 0 THEN n.until + interval '1 hour' ELSE greatest(n.until, s.next_at) END)
ORDER BY s.name LIMIT CAST(:batch AS integer)
