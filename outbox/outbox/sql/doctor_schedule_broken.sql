-- Purpose: find schedules whose turns fail.
-- Transition: none
-- Parameters: batch
-- Locks: none. Index: none: all schedules are read.
SELECT s.name AS subject, 'has made nothing since ' || s.broken_at || ': ' || s.last_error AS detail
FROM {schema}.schedules AS s
WHERE s.broken_at IS NOT NULL AND NOT s.paused AND s.disabled_at IS NULL
ORDER BY s.broken_at, s.name LIMIT CAST(:batch AS integer)
