-- Purpose: read the lanes of a redrive in which something waits, those first whose turn comes first.
-- Transition: none
-- Parameters: operation_id, batch
-- Locks: none. Index: redrive_lanes_free.
SELECT l.kind, l.tenant, l.waiting, l.free_at FROM {schema}.redrive_lanes AS l
WHERE l.operation_id = CAST(:operation_id AS uuid) AND l.waiting > 0
ORDER BY l.free_at, l.kind, l.tenant LIMIT CAST(:batch AS integer)
