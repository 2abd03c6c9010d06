-- Purpose: find running jobs whose current attempt is recorded as ended already: its real end could not be written.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'attempt ' || a.number || ' runs, and is recorded as ' || a.outcome AS detail
FROM {schema}.jobs AS j JOIN {schema}.attempts AS a ON a.job_id = j.id AND a.number = j.attempt_count
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state = 'running'
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
