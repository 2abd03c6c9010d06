-- Purpose: tell which of the things are there at all that keepers see to: pauses, limits, jobs that wait for their concurrency key, schedules, redrives.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: outbox_key_aside, one probe; redrive_operations_due. The others hold a row for each thing that somebody has set.
SELECT EXISTS (SELECT 1 FROM {schema}.pauses) AS pauses,
  EXISTS (SELECT 1 FROM {schema}.queue_limits AS q WHERE q.governed) AS limits,
  (SELECT true FROM {schema}.outbox AS o WHERE o.limit_key IS NOT NULL AND o.phase = 'owed' AND o.last_error = 'waits for its key'
    ORDER BY o.limit_key, o.limit_group, o.tenant LIMIT 1) IS NOT NULL AS keys,
  EXISTS (SELECT 1 FROM {schema}.schedules AS s WHERE NOT s.paused AND s.disabled_at IS NULL) AS schedules,
  EXISTS (SELECT 1 FROM {schema}.redrive_operations AS r WHERE r.state = 'running') AS redrives
