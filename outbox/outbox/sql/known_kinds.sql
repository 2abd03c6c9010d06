-- Purpose: name the kinds of which anything is known: jobs, ended ones too, consumers' handlers, pauses, schedules. Of very many tenants the jobs of the first only.
-- Transition: none
-- Parameters: name (of no use here), most (pairs of tenant and kind that are read of the jobs)
-- Locks: none. Index: jobs_logical_key, one probe per distinct pair of tenant and kind; the other tables are small and read whole.
WITH RECURSIVE pair(tenant, kind, place) AS (
  (SELECT j.tenant, j.kind, 1 FROM {schema}.jobs AS j ORDER BY j.tenant, j.kind, j.logical_key LIMIT 1)
  UNION ALL
  SELECT m.tenant, m.kind, k.place + 1 FROM pair AS k CROSS JOIN LATERAL (
    SELECT j.tenant, j.kind FROM {schema}.jobs AS j WHERE (j.tenant, j.kind) > (k.tenant, k.kind) ORDER BY j.tenant, j.kind, j.logical_key LIMIT 1
  ) AS m WHERE k.place < CAST(:most AS integer)
)
SELECT n.name, (SELECT count(*) FROM pair AS p) >= CAST(:most AS integer) AS cut FROM (
  SELECT p.kind AS name FROM pair AS p
  UNION SELECT h.kind FROM {schema}.processes AS p CROSS JOIN LATERAL unnest(p.kinds) AS h(kind)
  UNION SELECT u.name FROM {schema}.pauses AS u WHERE u.scope = 'kind' UNION SELECT s.kind FROM {schema}.schedules AS s
) AS n WHERE CAST(:name AS text) IS NOT NULL ORDER BY n.name
