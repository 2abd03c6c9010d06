-- Purpose: read the trace contexts in which jobs were submitted, of those that have one.
-- Transition: none
-- Parameters: job_ids
-- Locks: none. Index: primary key.
SELECT j.id, j.trace_context::text AS trace_text FROM {schema}.jobs AS j
WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.trace_context IS NOT NULL
