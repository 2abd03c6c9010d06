-- Purpose: note what has left each lane of a redrive, and when the next may go there.
-- Transition: none
-- Parameters: operation_id, kinds, tenants, gone, free_at (one row per lane; free_at NULL: as it was)
-- Locks: lanes of an operation that the caller holds. Index: redrive_lanes_pkey.
UPDATE {schema}.redrive_lanes AS l
SET waiting = greatest(l.waiting - n.gone, 0), free_at = coalesce(n.free_at, l.free_at)
FROM unnest(CAST(:kinds AS text[]), CAST(:tenants AS text[]), CAST(:gone AS integer[]), CAST(:free_at AS timestamptz[])) AS n(kind, tenant, gone, free_at)
WHERE l.operation_id = CAST(:operation_id AS uuid) AND l.kind = n.kind AND l.tenant = n.tenant
