-- Purpose: look at leases that were extended again when they will have ended, not before.
-- Transition: none
-- Parameters: job_ids
-- Locks: outbox rows in id order, NO KEY UPDATE, SKIP LOCKED: it never waits for a holder, and one under job.transaction() (KEY SHARE) is
--   moved all the same. Index: primary key (coalesce keeps the planner from outbox_leases). Lost with a crash of the server, it is only done again.
WITH mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false) AND o.lease_expires_at > o.due_at
  ORDER BY o.job_id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.outbox AS o SET due_at = o.lease_expires_at WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM mine AS m))
RETURNING o.job_id
