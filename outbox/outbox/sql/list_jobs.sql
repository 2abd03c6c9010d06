-- Purpose: list the newest jobs that fit a filter, without payloads. Each filter is off where its parameter is NULL.
-- Transition: none
-- Parameters: state, queue, kind, tenant, batch
-- Locks: none. Index: primary key backwards (ids grow with time); a rare filter reads far, so callers bound the statement's time.
SELECT j.id, j.tenant, j.kind, j.logical_key, j.version, j.queue, j.priority, j.state, j.run_at, j.deadline_at, j.max_attempts,
  j.attempt_count, j.uncharged_attempts, j.lease_owner, j.lease_started_at, j.cancel_requested_at, j.cancel_requested_by, j.cancel_reason,
  j.first_error_class, j.first_error_code, j.first_error_message, j.last_error_class, j.last_error_code, j.last_error_message,
  j.created_at, j.finished_at, j.budget_start, j.failed_because, j.correlation_id, j.parent_id, j.cancelled_after,
  o.phase, o.due_at, o.released_at, o.release_count, o.lease_expires_at, o.last_error AS owed_error, o.progress
FROM {schema}.jobs AS j LEFT JOIN {schema}.outbox AS o ON o.job_id = j.id
WHERE (CAST(:state AS text) IS NULL OR j.state = CAST(:state AS text))
  AND (CAST(:queue AS text) IS NULL OR j.queue = CAST(:queue AS text))
  AND (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
  AND (CAST(:tenant AS text) IS NULL OR j.tenant = CAST(:tenant AS text))
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
