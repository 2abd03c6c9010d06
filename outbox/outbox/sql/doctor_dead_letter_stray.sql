-- Purpose: find dead letters of jobs that have not failed, or are not there.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT d.job_id::text AS subject, 'has a dead letter, and ' || coalesce('is ' || j.state, 'there is no such job') AS detail
FROM {schema}.dead_letters AS d LEFT JOIN {schema}.jobs AS j ON j.id = d.job_id
WHERE d.job_id >= CAST(:low AS uuid) AND d.job_id < CAST(:below AS uuid) AND (j.id IS NULL OR j.state IN ('ready', 'running', 'succeeded', 'cancelled'))
ORDER BY d.job_id DESC LIMIT CAST(:batch AS integer)
