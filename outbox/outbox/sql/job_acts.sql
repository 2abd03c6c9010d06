-- Purpose: read what people and late workers have done about one job, as the audit has it: the newest so many, oldest first.
-- Transition: none
-- Parameters: job_id, batch
-- Locks: none. Index: audit_subject.
SELECT n.at, n.actor, n.action, n.reason, n.detail FROM (
  SELECT a.id, a.at, a.actor, a.action, a.reason, a.detail
  FROM {schema}.audit AS a
  WHERE a.subject = CAST(CAST(:job_id AS uuid) AS text) ORDER BY a.id DESC LIMIT CAST(:batch AS integer)
) AS n ORDER BY n.id
