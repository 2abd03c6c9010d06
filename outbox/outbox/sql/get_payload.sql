-- Purpose: read one job's stored payload, for the one who masks it before anybody sees it.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: jobs_pkey.
SELECT j.payload::text AS payload_text FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
