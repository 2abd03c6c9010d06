-- Purpose: read what is on record about a job's effects beside their rows: what people resolved, and what workers learnt too late.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: audit_subject.
SELECT a.at, a.actor, a.action, a.reason, a.detail
FROM {schema}.audit AS a
WHERE a.subject = CAST(CAST(:job_id AS uuid) AS text) AND a.action IN ('effect.resolve', 'effect.late') ORDER BY a.id
