-- Purpose: name the first jobs of a redrive that wait.
-- Transition: none
-- Parameters: operation_id, batch
-- Locks: none. Index: redrive_items_pkey (prefix).
SELECT i.job_id FROM {schema}.redrive_items AS i
WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.state = 'waiting' ORDER BY i.job_id LIMIT CAST(:batch AS integer)
