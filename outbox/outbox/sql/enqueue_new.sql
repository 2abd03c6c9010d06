-- Purpose: write jobs with their outbox rows if all their keys are free, else nothing; tells which it was.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), sorted by key, none twice
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key.
SELECT {schema}.enqueue_new_2(:jobs)
