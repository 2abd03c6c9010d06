-- Purpose: list the queues that are governed.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the table holds a row for each queue that somebody has set limits for.
SELECT q.name FROM {schema}.queue_limits AS q WHERE q.governed ORDER BY q.name
