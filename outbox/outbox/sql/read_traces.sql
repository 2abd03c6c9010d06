-- Purpose: read what has happened for a job so far, as it is committed, for a cancel whose own snapshot may be too old.
-- Transition: none
-- Parameters: job_id
-- Locks: none; the caller holds the outbox row. Index: the primary keys of jobs, checkpoints and effects.
SELECT CAST(jsonb_build_object(
  {happened}) AS text) AS traces
FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
