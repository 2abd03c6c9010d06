-- Purpose: tell which of the given ids name no job, as far as the caller's transaction sees, and which name one that has met the condition of a
--   set by now, with its state.
-- Transition: none
-- Parameters: jobs (JSON text: an array of ids), condition (succeeded | ended)
-- Locks: none. Index: primary key.
SELECT CAST(a.value AS uuid) AS job_id, j.state AS seen
FROM jsonb_array_elements_text(CAST(CAST(:jobs AS text) AS jsonb)) AS a(value)
LEFT JOIN LATERAL (
  SELECT k.state, k.finished_at FROM {schema}.jobs AS k WHERE k.id = CAST(a.value AS uuid)
  LIMIT 1  -- keeps the planner to one index probe per id
) AS j ON true
WHERE j.state IS NULL OR CASE WHEN CAST(:condition AS text) = 'succeeded' THEN j.state = 'succeeded' ELSE j.finished_at IS NOT NULL END
