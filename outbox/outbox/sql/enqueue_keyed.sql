-- Purpose: write jobs of which some have a concurrency key, as enqueue.sql does.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_4), sorted by logical key; bounded (as in enqueue.sql)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key; primary keys of queue_bounds and queue_figures.
SELECT {schema}.enqueue_4(:jobs, :bounded)
