-- Purpose: read a value that an earlier attempt kept.
-- Transition: none
-- Parameters: job_id, name
-- Locks: none. Index: checkpoints_pkey.
SELECT c.value::text AS value FROM {schema}.checkpoints AS c WHERE c.job_id = CAST(:job_id AS uuid) AND c.name = :name
