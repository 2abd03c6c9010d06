-- Purpose: write jobs of which some have a concurrency key, or nothing if any logical key is taken, as enqueue_new.sql does.
-- Transition: none (a new job starts ready)
-- Parameters: jobs, bounded (as in enqueue_keyed.sql)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key; primary keys of queue_bounds and queue_figures.
SELECT {schema}.enqueue_new_4(:jobs, :bounded)
