-- Purpose: list the effects of one job, in the order in which they were begun.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: effects_pkey (prefix).
SELECT e.job_id, e.name, e.state, e.attempt, e.sends, e.remote_request_id, e.settled_by, e.result_note, e.error_code, e.error_message,
  e.created_at, e.updated_at, e.confirmed_at, j.state AS job_state, j.kind, j.logical_key, j.tenant
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.job_id = CAST(:job_id AS uuid) ORDER BY e.created_at, e.name
