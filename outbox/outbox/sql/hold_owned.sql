-- Purpose: hold still what is owed to attempts that are about to end in success, if their tokens still own them. What comes after it in the
--   transaction has a snapshot of its own, and so sees each effect whose announcement this has waited for: of a worker's connection that broke,
--   the statement may still be under way.
-- Transition: none
-- Parameters: job_ids, tokens
-- Locks: the outbox rows in id order, waiting, as the statements that follow. Index: outbox_pkey; coalesce keeps the planner from outbox_leases.
SELECT o.job_id FROM {schema}.outbox AS o
JOIN unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[])) AS e(job_id, token) ON e.job_id = o.job_id AND e.token = o.lease_token
WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
ORDER BY o.job_id FOR UPDATE OF o
