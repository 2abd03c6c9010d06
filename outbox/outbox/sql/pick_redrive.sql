-- Purpose: name the items of a redrive that go next: all canaries that wait, or so many of each lane.
-- Transition: none
-- Parameters: operation_id, canaries (true: only these), kinds, tenants, counts (one row per lane), batch
-- Locks: none. Index: redrive_items_canary, redrive_items_waiting.
SELECT i.job_id FROM {schema}.redrive_items AS i
WHERE CAST(:canaries AS boolean) AND i.operation_id = CAST(:operation_id AS uuid) AND i.canary AND i.state = 'waiting'
UNION ALL
SELECT p.job_id
FROM unnest(CAST(:kinds AS text[]), CAST(:tenants AS text[]), CAST(:counts AS integer[])) AS l(kind, tenant, count)
CROSS JOIN LATERAL (
  SELECT i.job_id FROM {schema}.redrive_items AS i
  WHERE NOT CAST(:canaries AS boolean) AND i.operation_id = CAST(:operation_id AS uuid) AND i.state = 'waiting' AND i.kind = l.kind AND i.tenant = l.tenant
  ORDER BY i.job_id LIMIT l.count
) AS p
LIMIT CAST(:batch AS integer)
