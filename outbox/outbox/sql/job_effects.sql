-- Purpose: read so many effects of one job, those first whose outcome is unknown, then by name; in the order in which they were begun. And count, as far as
--   count_limit, how many it has.
-- Transition: none
-- Parameters: job_id, batch, count_limit
-- Locks: none. Index: effects_open_of_job, effects_pkey, each in its own order and no further than needed.
WITH open AS MATERIALIZED (
  SELECT e.name FROM {schema}.effects AS e WHERE e.job_id = CAST(:job_id AS uuid) AND e.state IN ('pending', 'uncertain')
  ORDER BY e.job_id, e.name LIMIT CAST(:batch AS integer)
), settled AS MATERIALIZED (
  SELECT e.name FROM {schema}.effects AS e WHERE e.job_id = CAST(:job_id AS uuid) AND e.state NOT IN ('pending', 'uncertain')
  ORDER BY e.job_id, e.name LIMIT CAST(:batch AS integer) - (SELECT count(*) FROM open)
)
SELECT {effect_columns},
  (SELECT count(*) FROM (SELECT 1 FROM {schema}.effects AS c WHERE c.job_id = CAST(:job_id AS uuid) ORDER BY c.job_id, c.name
    LIMIT CAST(:count_limit AS integer)) AS c) AS total
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.job_id = CAST(:job_id AS uuid) AND e.name = ANY (ARRAY(SELECT o.name FROM open AS o UNION ALL SELECT s.name FROM settled AS s))
ORDER BY e.created_at, e.name
