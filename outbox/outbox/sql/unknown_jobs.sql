-- Purpose: tell which of the given ids name no job, as far as the caller's transaction sees.
-- Transition: none
-- Parameters: jobs (JSON text: an array of ids)
-- Locks: none. Index: primary key.
SELECT CAST(a.value AS uuid) AS job_id FROM jsonb_array_elements_text(CAST(CAST(:jobs AS text) AS jsonb)) AS a(value)
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = CAST(a.value AS uuid))
