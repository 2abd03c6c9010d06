-- Purpose: find running jobs whose two rows hold different lease tokens: neither its worker nor the recovery can end them.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'attempt ' || j.attempt_count || ' has one token in each row' AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND j.state = 'running' AND o.phase = 'leased' AND o.lease_token <> j.lease_token
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
