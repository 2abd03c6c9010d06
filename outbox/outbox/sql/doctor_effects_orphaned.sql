-- Purpose: find effects whose job is not there.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT e.job_id::text AS subject, 'effect ' || e.name || ' is ' || e.state || ', and there is no such job' AS detail
FROM {schema}.effects AS e
WHERE e.job_id >= CAST(:low AS uuid) AND e.job_id < CAST(:below AS uuid) AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = e.job_id)
ORDER BY e.job_id DESC LIMIT CAST(:batch AS integer)
