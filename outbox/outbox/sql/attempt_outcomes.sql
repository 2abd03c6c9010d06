-- Purpose: find out, after a commit whose answer never came, how the attempts under these tokens ended, if they have.
-- Transition: none
-- Parameters: job_ids, tokens
-- Locks: none. Index: attempts_pkey (prefix).
SELECT a.job_id, a.lease_token, a.outcome FROM {schema}.attempts AS a
WHERE a.job_id = ANY (CAST(:job_ids AS uuid[])) AND a.lease_token = ANY (CAST(:tokens AS uuid[]))
