-- Purpose: read which checkpoints one job has, without their values, by name, and how its trace context reads.
-- Transition: none
-- Parameters: job_id, batch
-- Locks: none. Index: jobs_pkey; checkpoints_pkey, in its own order.
SELECT c.name, c.attempt, c.updated_at, left(j.trace_context ->> 'traceparent', 64) AS traceparent
FROM {schema}.jobs AS j LEFT JOIN LATERAL (
  SELECT k.name, k.attempt, k.updated_at FROM {schema}.checkpoints AS k
  WHERE k.job_id = j.id ORDER BY k.job_id, k.name LIMIT CAST(:batch AS integer)
) AS c ON true
WHERE j.id = CAST(:job_id AS uuid)
