-- Purpose: of the next jobs in the order of their ids, tell which are sealed and under which key; and how far this look came.
-- Transition: none
-- Parameters: after (NULL: from the beginning), batch
-- Locks: none. Index: jobs_pkey. One row without a job if none of them is sealed.
WITH walked AS MATERIALIZED (
  SELECT j.id, j.tenant, split_part(j.payload ->> '$sealed', ':', 2) AS key_id
  FROM {schema}.jobs AS j
  WHERE j.id > coalesce(CAST(:after AS uuid), '00000000-0000-0000-0000-000000000000'::uuid)
  ORDER BY j.id LIMIT CAST(:batch AS integer)
)
SELECT (SELECT count(*) FROM walked) AS walked, (SELECT l.id FROM walked AS l ORDER BY l.id DESC LIMIT 1) AS last_id,
  w.id, w.tenant, w.key_id
FROM (SELECT 1) AS one LEFT JOIN walked AS w ON w.key_id IS NOT NULL
