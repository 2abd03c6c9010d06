-- Purpose: hold a lease still for the rest of the transaction, if the token still owns it: the fence in front of a worker's mid-run writes.
-- Transition: none
-- Parameters: job_id, token
-- Locks: the outbox row, KEY SHARE: heartbeats pass, everything that would end or move the lease waits or skips. Index: primary key.
SELECT o.job_id FROM {schema}.outbox AS o
WHERE o.job_id = CAST(:job_id AS uuid) AND o.lease_token = CAST(:token AS uuid) AND o.phase = 'leased'
FOR KEY SHARE
