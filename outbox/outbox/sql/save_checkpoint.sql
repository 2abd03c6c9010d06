-- Purpose: keep a named value for later attempts of one job. Runs behind fence.sql in the same transaction.
-- Transition: none
-- Parameters: job_id, name, attempt, value (JSON text)
-- Locks: the checkpoint row. Index: checkpoints_pkey.
INSERT INTO {schema}.checkpoints AS c (job_id, name, attempt, value, updated_at)
VALUES (CAST(:job_id AS uuid), :name, CAST(:attempt AS integer), CAST(CAST(:value AS text) AS jsonb), {schema}.clock())
ON CONFLICT (job_id, name) DO UPDATE SET attempt = excluded.attempt, value = excluded.value, updated_at = excluded.updated_at
