-- Purpose: of the next jobs in the order of their ids, count those that are sealed, by key; and tell how far this look came.
-- Transition: none
-- Parameters: after (NULL: from the beginning), batch
-- Locks: none. Index: jobs_pkey. One row without a key if none of them is sealed.
WITH walked AS MATERIALIZED (
  SELECT j.id, split_part(j.payload ->> '$sealed', ':', 2) AS key_id
  FROM {schema}.jobs AS j
  WHERE j.id > coalesce(CAST(:after AS uuid), '00000000-0000-0000-0000-000000000000'::uuid)
  ORDER BY j.id LIMIT CAST(:batch AS integer)
)
SELECT (SELECT count(*) FROM walked) AS walked, (SELECT l.id FROM walked AS l ORDER BY l.id DESC LIMIT 1) AS last_id,
  k.key_id, k.jobs
FROM (SELECT 1) AS one
LEFT JOIN (SELECT w.key_id, count(*) AS jobs FROM walked AS w WHERE w.key_id IS NOT NULL GROUP BY w.key_id) AS k ON true
ORDER BY k.key_id
