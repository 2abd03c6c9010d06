-- Purpose: hold what is owed to jobs that are about to be ended together, as hold_job.sql does for one; what somebody else holds is left out.
-- Transition: none
-- Parameters: jobs (JSON text: an array of ids), queue, tenant, kind, phase_leased, created_before (the filter that they must still fit; each part
--   is off where it is NULL)
-- Locks: the outbox rows in id order, SKIP LOCKED. Index: both primary keys.
SELECT o.job_id FROM {schema}.outbox AS o
WHERE o.job_id = ANY (ARRAY(SELECT CAST(a.value AS uuid) FROM jsonb_array_elements_text(CAST(CAST(:jobs AS text) AS jsonb)) AS a(value)))
  AND (CAST(:queue AS text) IS NULL OR o.queue = CAST(:queue AS text))
  AND (CAST(:tenant AS text) IS NULL OR o.tenant = CAST(:tenant AS text))
  AND (CAST(:phase_leased AS boolean) IS NULL OR (o.phase = 'leased') = CAST(:phase_leased AS boolean))
  AND (SELECT (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
      AND (CAST(:created_before AS timestamptz) IS NULL OR j.created_at < CAST(:created_before AS timestamptz))
    FROM {schema}.jobs AS j WHERE j.id = o.job_id)
ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
