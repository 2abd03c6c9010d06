-- Purpose: what readers are shown of an effect: all but its stored result.
-- Needs: e (the effect's row), j (its job's row)
-- Parameters: none
e.job_id, e.name, e.state, e.attempt, e.sends, e.remote_request_id, e.settled_by, e.result_note, e.error_code, e.error_message,
  e.created_at, e.updated_at, e.confirmed_at, j.state AS job_state, j.kind, j.logical_key, j.tenant
