-- Purpose: find succeeded jobs whose last attempt is not recorded as succeeded.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'attempt ' || j.attempt_count || ' is recorded as ' || coalesce(a.outcome, 'nothing') AS detail
FROM {schema}.jobs AS j LEFT JOIN {schema}.attempts AS a ON a.job_id = j.id AND a.number = j.attempt_count
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state = 'succeeded' AND a.outcome IS DISTINCT FROM 'succeeded'
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
