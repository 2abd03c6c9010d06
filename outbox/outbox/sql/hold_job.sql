-- Purpose: hold what is owed to a job, so that nothing can begin, end or be written for it until the transaction ends. No row: it has ended.
-- Transition: none
-- Parameters: job_id
-- Locks: the outbox row, waiting: for a claim, a completion or a worker's fenced transaction to commit. Index: primary key.
SELECT o.job_id, current_setting('transaction_isolation') AS isolation FROM {schema}.outbox AS o
WHERE o.job_id = CAST(:job_id AS uuid) FOR UPDATE
