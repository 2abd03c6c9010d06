-- Purpose: list the effects whose outcome is unknown, with their jobs, those first that have waited longest for an answer.
-- Transition: none
-- Parameters: states (pending, uncertain, or both), batch
-- Locks: none. Index: effects_open, in its own order.
SELECT e.job_id, e.name, e.state, e.attempt, e.sends, e.remote_request_id, e.settled_by, e.result_note, e.error_code, e.error_message,
  e.created_at, e.updated_at, e.confirmed_at, j.state AS job_state, j.kind, j.logical_key, j.tenant
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.state IN ('pending', 'uncertain') AND e.state = ANY (CAST(:states AS text[]))
ORDER BY e.created_at LIMIT CAST(:batch AS integer)
