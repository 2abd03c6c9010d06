-- Purpose: find the jobs of one correlation id that fit a filter, the newest first. Each filter is off where its parameter is NULL.
-- Transition: none
-- Parameters: correlation_id, below (where the list begins), state, queue, kind, tenant, subject, limit_group, limit_key, batch
-- Locks: none. Index: jobs_correlation, backwards: ids grow with time.
SELECT j.id FROM {schema}.jobs AS j
WHERE j.correlation_id = CAST(:correlation_id AS text) AND j.id < CAST(:below AS uuid)
  AND (CAST(:state AS text) IS NULL OR j.state = CAST(:state AS text))
  AND (CAST(:queue AS text) IS NULL OR j.queue = CAST(:queue AS text))
  AND (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
  AND (CAST(:tenant AS text) IS NULL OR j.tenant = CAST(:tenant AS text))
  AND (CAST(:subject AS text) IS NULL OR j.subject = CAST(:subject AS text))
  AND (CAST(:limit_group AS text) IS NULL OR j.limit_group = CAST(:limit_group AS text))
  AND (CAST(:limit_key AS text) IS NULL OR j.limit_key = CAST(:limit_key AS text))
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
