-- Purpose: find jobs that have not ended and to which nothing is owed: nobody would ever run them.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'is ' || j.state || ', without an outbox row' AS detail
FROM {schema}.jobs AS j
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state IN ('ready', 'running')
  AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.job_id = j.id)
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
