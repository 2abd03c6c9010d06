-- Purpose: find outbox rows of jobs that have ended.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'has ' || j.state || ', and its outbox row is ' || o.phase AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND j.state IN ('succeeded', 'failed', 'cancelled')
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
