-- Purpose: have items that wait take the place of canaries that showed nothing: refused, cancelled, redriven by somebody else, gone.
-- Transition: none
-- Parameters: operation_id, count
-- Locks: items of an operation that the caller holds. Index: redrive_items_waiting, in its own order: however many others have gone, it reads but these.
UPDATE {schema}.redrive_items AS i SET canary = true
WHERE i.operation_id = CAST(:operation_id AS uuid) AND i.job_id = ANY (ARRAY(
  SELECT w.job_id FROM {schema}.redrive_items AS w
  WHERE w.operation_id = CAST(:operation_id AS uuid) AND w.state = 'waiting' AND NOT w.canary
  ORDER BY w.kind, w.tenant, w.job_id LIMIT CAST(:count AS integer)
))
RETURNING i.job_id
