-- Purpose: find jobs that wait for a set of others which is closed, or is not there: nobody will ever make them due.
-- Transition: none
-- Parameters: low and below (the range of ids), held_at (when held jobs are due), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, 'waits for a set of jobs that is closed, or is not there' AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND o.due_at BETWEEN CAST(:held_at AS timestamptz) AND '9999-01-01Z'
  AND NOT EXISTS (SELECT 1 FROM {schema}.joins AS s WHERE s.job_id = o.job_id AND s.closed_at IS NULL)
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
