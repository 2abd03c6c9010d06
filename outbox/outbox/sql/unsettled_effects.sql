-- Purpose: tell which effects keep attempts, whose tokens still own them, from ending in success: up to three of each, by name.
-- Transition: none
-- Parameters: job_ids, tokens
-- Locks: none. Index: both primary keys (that of effects by prefix); coalesce keeps the planner from effects_open, where it would walk the open
--   effects of all.
SELECT o.job_id, f.name, f.state
FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[])) AS t(job_id, token)
JOIN {schema}.outbox AS o ON o.job_id = t.job_id AND o.lease_token = t.token AND coalesce(o.phase = 'leased', false)
CROSS JOIN LATERAL (
  SELECT e.name, e.state FROM {schema}.effects AS e
  WHERE e.job_id = o.job_id AND coalesce(e.state IN ('pending', 'uncertain'), false) ORDER BY e.name LIMIT 3
) AS f
