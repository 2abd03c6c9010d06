-- Purpose: find attempts whose job is not there.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT a.job_id::text AS subject, count(*) || ' attempts, and there is no such job' AS detail
FROM {schema}.attempts AS a
WHERE a.job_id >= CAST(:low AS uuid) AND a.job_id < CAST(:below AS uuid) AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = a.job_id)
GROUP BY a.job_id ORDER BY a.job_id DESC LIMIT CAST(:batch AS integer)
