-- Purpose: find outbox rows whose queue, tenant, deadline, subject or concurrency key is not the job's.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, concat_ws(', ', CASE WHEN o.queue <> j.queue THEN 'queue' END, CASE WHEN o.tenant <> j.tenant THEN 'tenant' END,
  CASE WHEN o.deadline_at IS DISTINCT FROM j.deadline_at THEN 'deadline' END,
  CASE WHEN o.subject IS DISTINCT FROM j.kind || ':' || j.subject THEN 'subject' END,
  CASE WHEN (o.limit_group, o.limit_key, o.limit_max, o.limit_place) IS DISTINCT FROM (j.limit_group, j.limit_key, j.limit_max, j.limit_place)
    THEN 'concurrency key' END) || ' differs between its two rows' AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND j.state IN ('ready', 'running')
  AND (o.queue <> j.queue OR o.tenant <> j.tenant OR o.deadline_at IS DISTINCT FROM j.deadline_at OR o.subject IS DISTINCT FROM j.kind || ':' || j.subject
    OR (o.limit_group, o.limit_key, o.limit_max, o.limit_place) IS DISTINCT FROM (j.limit_group, j.limit_key, j.limit_max, j.limit_place))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
