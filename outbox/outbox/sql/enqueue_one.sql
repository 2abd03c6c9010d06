-- Purpose: write one job with its outbox row, or find the job that already holds its key: NULL if it is new, else JSON; U+001D or U+001E first: its
--   queue is full, and nothing was written.
-- Transition: none (a new job starts ready)
-- Parameters: jobs (text, see {schema}.write_jobs_2), holding one; bounded (text: as in enqueue.sql)
-- Locks: waits only for a transaction that has inserted the same (tenant, kind, logical key) and not yet ended.
-- Index: jobs_logical_key; primary keys of queue_bounds and queue_figures.
SELECT {schema}.enqueue_one_3(:jobs, :bounded)
