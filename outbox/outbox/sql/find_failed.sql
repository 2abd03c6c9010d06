-- Purpose: find the failed jobs of one page of the walk that fit a filter, the newest first: few among all, so by their dead letters.
-- Transition: none
-- Parameters: low and below (the range of ids), state, queue, kind, tenant, subject, limit_group, limit_key, batch
-- Locks: none. Index: primary key of the dead letters, a range of it; primary key of jobs for what is found.
SELECT j.id FROM {schema}.dead_letters AS d JOIN {schema}.jobs AS j ON j.id = d.job_id
WHERE d.job_id >= CAST(:low AS uuid) AND d.job_id < CAST(:below AS uuid) AND j.state = CAST(:state AS text)
  AND (CAST(:queue AS text) IS NULL OR d.queue = CAST(:queue AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND (CAST(:tenant AS text) IS NULL OR d.tenant = CAST(:tenant AS text))
  AND (CAST(:subject AS text) IS NULL OR j.subject = CAST(:subject AS text))
  AND (CAST(:limit_group AS text) IS NULL OR j.limit_group = CAST(:limit_group AS text))
  AND (CAST(:limit_key AS text) IS NULL OR j.limit_key = CAST(:limit_key AS text))
ORDER BY d.job_id DESC LIMIT CAST(:batch AS integer)
