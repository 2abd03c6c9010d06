-- Purpose: read what makes a failed job a dead letter, and its payload, which callers show masked.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: primary keys.
SELECT d.code, d.failed_at, d.discarded_at, d.discarded_by, d.discard_reason, j.payload::text AS payload_text
FROM {schema}.jobs AS j JOIN {schema}.dead_letters AS d ON d.job_id = j.id
WHERE j.id = CAST(:job_id AS uuid)
