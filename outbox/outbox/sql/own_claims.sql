-- Purpose: find the leases that a claim by this worker gave, among named jobs, after the claim's own answer was lost. One with a
--   concurrency key that has expired is none any more: its slot, and its token, may have gone to another.
-- Transition: none
-- Parameters: job_ids, owner (unique per process)
-- Locks: none. Index: primary key.
SELECT j.id, j.lease_token FROM {schema}.jobs AS j
WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.state = 'running' AND j.lease_owner = CAST(:owner AS text)
  AND (j.limit_key IS NULL OR coalesce((SELECT o.lease_expires_at > {schema}.clock() FROM {schema}.outbox AS o
    WHERE o.job_id = j.id AND o.lease_token = j.lease_token ORDER BY o.job_id LIMIT 1), false))
