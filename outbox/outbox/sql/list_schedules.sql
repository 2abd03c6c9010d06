-- Purpose: list schedules by their names, each with its state at this moment; payloads stay where they are.
-- Transition: none
-- Parameters: name (NULL: all), source (NULL: all)
-- Locks: none. Index: schedules_pkey; all of them are read otherwise: people declare them, so they are few.
SELECT s.name, s.kind, s.tenant, s.version, s.queue, encode(s.payload_digest, 'hex') AS digest, s.rule, s.time_zone, s.priority, s.missed, s.missed_limit, s.grace_s, s.jitter_s, s.starts_at,
  s.ends_at, s.subject, s.supersedes, s.limit_group, s.limit_key, s.limit_max, s.limit_rule, s.source, s.paused, s.disabled_at, s.next_at, s.last_at, s.last_error, s.broken_at, s.made, s.passed_over, s.created_at,
  s.updated_at, s.wake_at = 'infinity' AS over
FROM {schema}.schedules AS s
WHERE (CAST(:name AS text) IS NULL OR s.name = CAST(:name AS text)) AND (CAST(:source AS text) IS NULL OR s.source = CAST(:source AS text))
ORDER BY s.name
