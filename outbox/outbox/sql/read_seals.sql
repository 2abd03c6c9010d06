-- Purpose: read the envelopes of named jobs with what they are bound to. Jobs that are not sealed are left out.
-- Transition: none
-- Parameters: job_ids
-- Locks: none. Index: jobs_pkey.
SELECT j.id, j.tenant, j.kind, j.version, j.payload::text AS sealed
FROM {schema}.jobs AS j WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.payload ? '$sealed' ORDER BY j.id
