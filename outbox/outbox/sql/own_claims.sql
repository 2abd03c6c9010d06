-- Purpose: find the leases that a claim by this worker gave, among named jobs, after the claim's own answer was lost.
-- Transition: none
-- Parameters: job_ids, owner (unique per process)
-- Locks: none. Index: primary key.
SELECT j.id, j.lease_token FROM {schema}.jobs AS j
WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.state = 'running' AND j.lease_owner = CAST(:owner AS text)
