-- Purpose: read the payloads of a redrive's jobs, page by page, to patch them.
-- Transition: none
-- Parameters: operation_id, after (a job id), batch
-- Locks: none. Index: redrive_items_pkey, primary key of jobs.
SELECT j.id, j.kind, j.version, j.logical_key, j.subject, j.limit_group, j.limit_key, j.payload::text AS payload_text
FROM {schema}.redrive_items AS i JOIN {schema}.jobs AS j ON j.id = i.job_id
WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.job_id > CAST(:after AS uuid)
ORDER BY i.job_id LIMIT CAST(:batch AS integer)
