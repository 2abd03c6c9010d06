-- Purpose: find checkpoints whose job is not there.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT c.job_id::text AS subject, 'checkpoint ' || c.name || ', and there is no such job' AS detail
FROM {schema}.checkpoints AS c
WHERE c.job_id >= CAST(:low AS uuid) AND c.job_id < CAST(:below AS uuid) AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = c.job_id)
ORDER BY c.job_id DESC LIMIT CAST(:batch AS integer)
