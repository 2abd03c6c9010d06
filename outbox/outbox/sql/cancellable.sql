-- Purpose: look through a piece of the jobs that have not ended, in the order of their ids, and say which of them fit a filter.
-- Transition: none
-- Parameters: after (where the piece begins), window (rows looked at), queue, tenant, kind, phase_leased (true: running ones, false: waiting
--   ones), created_before; each filter is off where it is NULL
-- Locks: none. Index: both primary keys. There is a row for each job looked at: fits tells whether it fits.
SELECT o.job_id, j.kind, j.state, coalesce((
    (CAST(:queue AS text) IS NULL OR o.queue = CAST(:queue AS text))
    AND (CAST(:tenant AS text) IS NULL OR o.tenant = CAST(:tenant AS text))
    AND (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
    AND (CAST(:phase_leased AS boolean) IS NULL OR (o.phase = 'leased') = CAST(:phase_leased AS boolean))
    AND (CAST(:created_before AS timestamptz) IS NULL OR j.created_at < CAST(:created_before AS timestamptz))), false) AS fits
FROM (
  SELECT p.job_id, p.queue, p.tenant, p.phase FROM {schema}.outbox AS p
  WHERE p.job_id > CAST(:after AS uuid) ORDER BY p.job_id LIMIT CAST(:window AS integer)
) AS o
LEFT JOIN {schema}.jobs AS j ON j.id = o.job_id
ORDER BY o.job_id
