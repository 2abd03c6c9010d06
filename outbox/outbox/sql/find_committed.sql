-- Purpose: find a job by its key: on a connection of its own, for a writer whose snapshot is too old to see it; or before a full queue refuses it.
-- Transition: none
-- Parameters: tenant, kind, logical_key
-- Locks: none. Index: jobs_logical_key.
SELECT id AS job_id, state AS job_state, encode(payload_digest, 'hex') AS job_digest
FROM {schema}.jobs
WHERE tenant = :tenant AND kind = :kind AND logical_key = :logical_key
