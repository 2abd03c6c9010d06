-- Purpose: find failed jobs without their dead letter, which nobody would ever look at. Not while the letters of old failures are still being written.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'has failed, without a dead letter' AS detail
FROM {schema}.jobs AS j
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state = 'failed'
  AND NOT EXISTS (SELECT 1 FROM {schema}.dead_letters AS d WHERE d.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM {schema}.dead_letter_backlog AS b)
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
