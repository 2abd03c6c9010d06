-- Purpose: delete the redrive that has been over for longest, if that is long enough, a piece at a time: its items and lanes, and it once
--   none is left. The audit keeps who and why.
-- Transition: none
-- Parameters: keep_s (those that ended later stay), batch
-- Locks: the operation's row, SKIP LOCKED; its items and lanes, which nobody else touches any more but a purge of their jobs, SKIP LOCKED.
-- Index: redrive_operations_over, redrive_items_pkey and redrive_lanes_pkey (prefixes).
WITH over AS MATERIALIZED (
  SELECT r.id FROM {schema}.redrive_operations AS r
  WHERE r.ended_at < {schema}.clock() - make_interval(secs => CAST(:keep_s AS float8))
  ORDER BY r.ended_at LIMIT 1 FOR UPDATE SKIP LOCKED
), items AS (
  DELETE FROM {schema}.redrive_items AS i
  USING (
    SELECT w.operation_id, w.job_id FROM {schema}.redrive_items AS w WHERE w.operation_id = (SELECT v.id FROM over AS v)
    ORDER BY w.job_id LIMIT CAST(:batch AS integer) FOR UPDATE SKIP LOCKED
  ) AS n
  WHERE i.operation_id = n.operation_id AND i.job_id = n.job_id
  RETURNING i.job_id
), lanes AS (
  DELETE FROM {schema}.redrive_lanes AS l
  USING (
    SELECT w.operation_id, w.kind, w.tenant FROM {schema}.redrive_lanes AS w WHERE w.operation_id = (SELECT v.id FROM over AS v)
    ORDER BY w.kind, w.tenant LIMIT CAST(:batch AS integer) FOR UPDATE SKIP LOCKED
  ) AS n
  WHERE l.operation_id = n.operation_id AND l.kind = n.kind AND l.tenant = n.tenant
  RETURNING l.kind
), gone AS (
  DELETE FROM {schema}.redrive_operations AS r
  WHERE r.id = (SELECT v.id FROM over AS v) AND (SELECT count(*) FROM lanes) = 0
    -- What this statement deletes is still seen here.
    AND NOT EXISTS (SELECT 1 FROM {schema}.redrive_items AS i WHERE i.operation_id = r.id)
  RETURNING r.id
)
SELECT (SELECT count(*) FROM items) AS items, (SELECT count(*) FROM gone) AS operations FROM over AS v
