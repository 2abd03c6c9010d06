-- Purpose: find schedules of which all has been seen to up to an instant that the database's clock has not reached, since it was set back: they make nothing
--   until it comes there.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: none: all schedules are read.
SELECT s.name AS subject, 'makes nothing up to ' || s.after_at || ', by a clock that now says ' || n.now AS detail
FROM {schema}.schedules AS s, (SELECT {schema}.clock() AS now) AS n
WHERE s.disabled_at IS NULL AND s.after_at > n.now + make_interval(secs => CAST(:grace_s AS float8))
ORDER BY s.name LIMIT CAST(:batch AS integer)
