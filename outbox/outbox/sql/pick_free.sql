-- Purpose: name, and hold, items of a redrive that go in the place of those that somebody holds: so many of each lane.
-- Transition: none
-- Parameters: operation_id, kinds, tenants, counts (one row per lane), batch
-- Locks: the jobs' rows, SKIP LOCKED, of a lane in id order; an ended job has no outbox row. Index: redrive_items_waiting, no further than needed;
--   primary key of jobs.
SELECT p.job_id
FROM unnest(CAST(:kinds AS text[]), CAST(:tenants AS text[]), CAST(:counts AS integer[])) AS l(kind, tenant, count)
CROSS JOIN LATERAL (
  SELECT i.job_id FROM {schema}.redrive_items AS i JOIN {schema}.jobs AS j ON j.id = i.job_id
  WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.state = 'waiting' AND i.kind = l.kind AND i.tenant = l.tenant
  ORDER BY i.job_id LIMIT l.count FOR UPDATE OF j SKIP LOCKED
) AS p
LIMIT CAST(:batch AS integer)
