-- Purpose: find effects of which nobody knows whether they happened, of jobs that have succeeded: no success is written while there is one.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT e.job_id::text AS subject, 'effect ' || e.name || ' is ' || e.state || ', and its job has succeeded' AS detail
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.job_id >= CAST(:low AS uuid) AND e.job_id < CAST(:below AS uuid) AND e.state IN ('pending', 'uncertain') AND j.state = 'succeeded'
ORDER BY e.job_id DESC LIMIT CAST(:batch AS integer)
