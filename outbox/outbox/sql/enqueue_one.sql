-- Purpose: write one job with its outbox row, or find the job that already holds its key: NULL if it is new, else JSON.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), holding one
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key.
SELECT {schema}.enqueue_one_2(:jobs)
