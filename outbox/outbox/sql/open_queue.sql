-- Purpose: make a queue's row, without any limit, where there is none.
-- Transition: none
-- Parameters: queue
-- Locks: the new row. Index: queue_limits_pkey.
INSERT INTO {schema}.queue_limits (name, updated_at) SELECT CAST(:queue AS text), {schema}.clock() ON CONFLICT (name) DO NOTHING
RETURNING name
