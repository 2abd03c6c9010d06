-- Purpose: read one job, without its payload, with what is owed to it. By id, or by key where no id is given.
-- Transition: none
-- Parameters: job_id (or NULL), tenant, kind, logical_key
-- Locks: none. Index: primary keys, jobs_logical_key.
SELECT j.id, j.tenant, j.kind, j.logical_key, j.version, j.queue, j.priority, j.state, j.run_at, j.deadline_at, j.max_attempts,
  j.attempt_count, j.uncharged_attempts, j.lease_owner, j.lease_started_at, j.cancel_requested_at, j.cancel_requested_by, j.cancel_reason,
  j.first_error_class, j.first_error_code, j.first_error_message, j.last_error_class, j.last_error_code, j.last_error_message,
  j.created_at, j.finished_at, j.payload_erased_at, j.budget_start, j.failed_because, j.correlation_id, j.parent_id, CAST(j.cancelled_after AS text) AS cancelled_after, j.subject,
  j.limit_group, j.limit_key, j.limit_max, j.limit_place, j.limit_blocks,
  o.phase, {due_by_key} AS due_at, o.released_at, o.release_count, o.lease_expires_at, o.last_error AS owed_error, o.progress, o.needs_key
FROM {schema}.jobs AS j LEFT JOIN {schema}.outbox AS o ON o.job_id = j.id
WHERE j.id = coalesce(CAST(:job_id AS uuid), (
  SELECT k.id FROM {schema}.jobs AS k
  WHERE k.tenant = CAST(:tenant AS text) AND k.kind = CAST(:kind AS text) AND k.logical_key = CAST(:logical_key AS text)
))
