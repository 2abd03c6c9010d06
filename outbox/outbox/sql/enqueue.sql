-- Purpose: write jobs with their outbox rows, or find the jobs that already hold their keys.
-- Transition: none (a new job starts ready)
-- Parameters: rows (JSON array, see {schema}.enqueue_1)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key.
SELECT ordinal, job_id, created, job_state, job_digest
FROM {schema}.enqueue_1(CAST(:rows AS jsonb))
