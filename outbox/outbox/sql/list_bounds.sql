-- Purpose: read the bounds of all queues.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the table holds a row per bound and is read whole.
SELECT b.queue, b.tenant, b.max_backlog, b.max_oldest_s, b.policy, b.keeps, b.longest_s, b.actor, b.reason, b.at
FROM {schema}.queue_bounds AS b ORDER BY b.queue, b.tenant
