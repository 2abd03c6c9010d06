-- Purpose: find the jobs of one subject that have not ended, if they are few.
-- Transition: none
-- Parameters: tenant, about (the kind, a colon and the subject, as outbox rows have it), batch
-- Locks: none. Index: outbox_subject.
SELECT o.job_id AS id FROM {schema}.outbox AS o
WHERE o.tenant = CAST(:tenant AS text) AND o.subject = CAST(:about AS text) AND o.subject IS NOT NULL
ORDER BY o.tenant, o.subject LIMIT CAST(:batch AS integer)
