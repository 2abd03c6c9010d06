-- Purpose: find cancelled jobs that do not say by whom and why, or that a person has cancelled without a row in the audit. What a newer job has superseded
--   has none.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one; audit_subject.
SELECT j.id::text AS subject, 'cancelled by ' || coalesce(j.cancel_requested_by, 'nobody') || ', without its row in the audit' AS detail
FROM {schema}.jobs AS j
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state = 'cancelled' AND (num_nulls(j.cancel_requested_by, j.cancel_reason) > 0
  OR j.cancelled_after ->> 'superseded_by' IS NULL AND NOT EXISTS (SELECT 1 FROM {schema}.audit AS a WHERE a.subject = j.id::text AND a.action LIKE 'job.cancel%'))
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
