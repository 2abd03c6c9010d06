-- Purpose: list dead letters that fit a filter, newest first, without payloads. Each filter is off where its parameter is NULL.
-- Transition: none
-- Parameters: kind, code, queue, tenant, older_than_s, discarded (true: those that were discarded), batch
-- Locks: none. Index: the one of dead_letters that the filter has, dead_letters_open without one; the primary key of jobs for those that are shown.
WITH found AS MATERIALIZED (
  SELECT d.job_id, d.code, d.failed_at, d.discarded_at, d.discarded_by, d.discard_reason
  FROM {schema}.dead_letters AS d
  WHERE (d.discarded_at IS NOT NULL) = CAST(:discarded AS boolean)
    AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
    AND (CAST(:code AS text) IS NULL OR d.code = CAST(:code AS text))
    AND (CAST(:queue AS text) IS NULL OR d.queue = CAST(:queue AS text))
    AND (CAST(:tenant AS text) IS NULL OR d.tenant = CAST(:tenant AS text))
    AND (CAST(:older_than_s AS float8) IS NULL
      OR d.failed_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:older_than_s AS float8)))
  ORDER BY d.failed_at DESC, d.job_id DESC LIMIT CAST(:batch AS integer)
)
SELECT f.job_id, j.kind, j.version, j.logical_key, j.queue, j.tenant, j.state, j.attempt_count, f.code, j.last_error_message AS message,
  j.created_at, f.failed_at, f.discarded_at, f.discarded_by, f.discard_reason
FROM found AS f JOIN {schema}.jobs AS j ON j.id = f.job_id
ORDER BY f.failed_at DESC, f.job_id DESC
