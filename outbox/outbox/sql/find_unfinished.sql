-- Purpose: find the jobs of one page of the walk that have not ended and fit a filter, the newest first: few among all, so by their outbox rows.
-- Transition: none
-- Parameters: low and below (the range of ids), state, queue, kind, tenant, subject, limit_group, limit_key, batch
-- Locks: none. Index: primary key of the outbox, a range of it; primary key of jobs for each of its rows.
SELECT j.id FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid)
  AND (CAST(:state AS text) IS NULL OR j.state = CAST(:state AS text))
  AND (CAST(:queue AS text) IS NULL OR o.queue = CAST(:queue AS text))
  AND (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
  AND (CAST(:tenant AS text) IS NULL OR o.tenant = CAST(:tenant AS text))
  AND (CAST(:subject AS text) IS NULL OR j.subject = CAST(:subject AS text))
  AND (CAST(:limit_group AS text) IS NULL OR j.limit_group = CAST(:limit_group AS text))
  AND (CAST(:limit_key AS text) IS NULL OR j.limit_key = CAST(:limit_key AS text))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
