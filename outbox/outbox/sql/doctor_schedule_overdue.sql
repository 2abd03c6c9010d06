-- Purpose: find schedules whose turn has been due for long, and which no relay has looked at.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: schedules_due.
SELECT s.name AS subject, 'should have had its turn at ' || greatest(s.wake_at, s.updated_at) AS detail
FROM {schema}.schedules AS s, (SELECT {schema}.clock() - make_interval(secs => CAST(:grace_s AS float8)) AS ago) AS n
WHERE NOT s.paused AND s.disabled_at IS NULL AND s.wake_at <= n.ago AND s.updated_at <= n.ago
ORDER BY s.wake_at, s.name LIMIT CAST(:batch AS integer)
