-- Purpose: tell which of these ids are jobs.
-- Transition: none
-- Parameters: job_ids
-- Locks: none. Index: primary key.
SELECT j.id FROM {schema}.jobs AS j WHERE j.id = ANY (CAST(:job_ids AS uuid[]))
