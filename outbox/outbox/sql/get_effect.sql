-- Purpose: read one effect of a job, without its stored result.
-- Transition: none
-- Parameters: job_id, name
-- Locks: none. Index: primary keys.
SELECT {effect_columns}
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.job_id = CAST(:job_id AS uuid) AND e.name = CAST(:name AS text)
