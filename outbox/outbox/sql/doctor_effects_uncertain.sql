-- Purpose: find effects of which nobody knows whether they happened, of jobs that have failed or were cancelled.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT e.job_id::text AS subject, 'effect ' || e.name || ' is uncertain, and its job has ' || j.state AS detail
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.job_id >= CAST(:low AS uuid) AND e.job_id < CAST(:below AS uuid) AND e.state = 'uncertain' AND j.state IN ('failed', 'cancelled')
ORDER BY e.job_id DESC LIMIT CAST(:batch AS integer)
