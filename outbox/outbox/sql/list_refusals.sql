-- Purpose: read the writes of one job that the fence has refused, oldest first.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: refusals_job.
SELECT r.attempt, r.at, r.what, r.worker FROM {schema}.refusals AS r WHERE r.job_id = CAST(:job_id AS uuid) ORDER BY r.id
