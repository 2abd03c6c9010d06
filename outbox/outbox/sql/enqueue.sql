-- Purpose: write jobs with their outbox rows, or find the jobs that already hold their keys: NULL if all are new, else JSON; U+001D or U+001E first: a queue is
--   full, and nothing was written.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), sorted by key; bounded (text: the queues whose bounds hold, see {schema}.bounded_1)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key; primary keys of queue_bounds and queue_figures.
SELECT {schema}.enqueue_3(:jobs, :bounded)
