-- Purpose: tell whose outbox rows somebody holds locked just now, so that others needn't wait for them. A row that is gone is held by nobody.
-- Transition: none
-- Parameters: job_ids
-- Locks: outbox rows in id order, SKIP LOCKED; let go at once. Index: primary key.
WITH free AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) ORDER BY o.job_id FOR UPDATE SKIP LOCKED
)
SELECT o.job_id FROM {schema}.outbox AS o
WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND o.job_id <> ALL (ARRAY(SELECT f.job_id FROM free AS f))
