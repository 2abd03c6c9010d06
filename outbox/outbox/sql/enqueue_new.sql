-- Purpose: write jobs with their outbox rows if all their keys are free, else nothing: NULL if they are written, an empty text if not; U+001D or U+001E
--   first: a queue is full, and nothing was written.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), sorted by key, none twice; bounded (text: as in enqueue.sql)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key; primary keys of queue_bounds and queue_figures.
SELECT {schema}.enqueue_new_3(:jobs, :bounded)
