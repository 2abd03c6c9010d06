-- Purpose: count the jobs that wait for a key which a worker has found missing, by key.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the outbox holds what has not ended, and this is asked by people.
SELECT o.needs_key AS key_id, count(*) AS jobs FROM {schema}.outbox AS o WHERE o.needs_key IS NOT NULL GROUP BY o.needs_key ORDER BY o.needs_key
