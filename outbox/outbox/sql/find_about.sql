-- Purpose: find the jobs of one subject that have not ended, if they are few.
-- Transition: none
-- Parameters: tenant, about (the kind, a colon and the subject, as outbox rows have it), batch
-- Locks: none. Index: outbox_subject. The plan doesn't see which subject is asked for: for one that many jobs are about it would read the table from its
--   start, in the hope of meeting them soon.
WITH asked AS MATERIALIZED (SELECT CAST(:tenant AS text) AS tenant, CAST(:about AS text) AS about)
SELECT o.id FROM asked AS a CROSS JOIN LATERAL (
  SELECT x.job_id AS id FROM {schema}.outbox AS x WHERE x.tenant = a.tenant AND x.subject = a.about AND x.subject IS NOT NULL
  LIMIT CAST(:batch AS integer)
) AS o
