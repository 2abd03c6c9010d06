-- Purpose: find outbox rows whose job is not there.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, 'is ' || o.phase || ', and there is no such job' AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = o.job_id)
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
