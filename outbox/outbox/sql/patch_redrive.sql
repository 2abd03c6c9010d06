-- Purpose: keep the payloads that jobs of a redrive get when they are put back.
-- Transition: none
-- Parameters: operation_id, job_ids, payloads (JSON texts)
-- Locks: items that the caller's own transaction has written. Index: redrive_items_pkey.
UPDATE {schema}.redrive_items AS i
SET new_payload = CAST(n.payload AS jsonb)
FROM unnest(CAST(:job_ids AS uuid[]), CAST(:payloads AS text[])) AS n(job_id, payload)
WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.job_id = n.job_id
RETURNING i.job_id
