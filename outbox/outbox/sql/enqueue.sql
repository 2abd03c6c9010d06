-- Purpose: write jobs with their outbox rows, or find the jobs that already hold their keys: NULL if all are new, else JSON.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), sorted by key
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key.
SELECT {schema}.enqueue_2(:jobs)
