-- Purpose: name the tenants of which anything is known: jobs, ended ones too, limits, bounds, pauses, schedules. The one that is asked for is among them wherever
--   it stands, if it is known.
-- Transition: none
-- Parameters: name (the one that is asked for), most (no more are read of the jobs)
-- Locks: none. Index: jobs_logical_key, one probe per distinct tenant; the other tables are read whole: a row for each that somebody has set.
WITH RECURSIVE owner(name, place) AS (
  (SELECT j.tenant, 1 FROM {schema}.jobs AS j ORDER BY j.tenant, j.kind, j.logical_key LIMIT 1)
  UNION ALL
  SELECT m.tenant, k.place + 1 FROM owner AS k CROSS JOIN LATERAL (
    SELECT j.tenant FROM {schema}.jobs AS j WHERE j.tenant > k.name ORDER BY j.tenant, j.kind, j.logical_key LIMIT 1
  ) AS m WHERE k.place < CAST(:most AS integer)
)
SELECT n.name FROM (
  SELECT o.name FROM owner AS o
  UNION (SELECT j.tenant FROM {schema}.jobs AS j WHERE j.tenant = CAST(:name AS text) ORDER BY j.tenant, j.kind, j.logical_key LIMIT 1)
  UNION SELECT t.name FROM {schema}.tenant_limits AS t WHERE t.name <> '' UNION SELECT b.tenant FROM {schema}.queue_bounds AS b WHERE b.tenant <> ''
  UNION SELECT u.name FROM {schema}.pauses AS u WHERE u.scope = 'tenant' UNION SELECT s.tenant FROM {schema}.schedules AS s
) AS n ORDER BY n.name
