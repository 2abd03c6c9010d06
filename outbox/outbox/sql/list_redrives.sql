-- Purpose: list redrives, newest first, or read one.
-- Transition: none
-- Parameters: operation_id (or NULL for all), batch
-- Locks: none. Index: primary key for one; for all none: there are those of the last months, and what was previewed first may begin last.
SELECT r.id, r.state, r.actor, r.reason, r.chosen, r.rate_per_s, r.canary, r.failure_ratio, r.include_uncertain, r.deadline_at, r.total,
  r.redriven, r.refused, r.succeeded, r.failed, r.otherwise, r.next_at, r.stop_reason, r.created_at, r.ended_at
FROM {schema}.redrive_operations AS r
WHERE CAST(:operation_id AS uuid) IS NULL OR r.id = CAST(:operation_id AS uuid)
ORDER BY r.created_at DESC, r.id DESC LIMIT CAST(:batch AS integer)
