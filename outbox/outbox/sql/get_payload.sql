-- Purpose: read one job's stored payload, for the one who masks it before anybody sees it.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: jobs_pkey.
SELECT j.kind, j.version, j.payload::text AS payload_text, j.payload_erased_at FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
