-- Purpose: name of each queue the job that has been out, or due, for longest, for whoever asks why nobody moves it: one whose hint is out, where these are asked
--   for, and one that is owed. Oldest first.
-- Transition: none
-- Parameters: queues, out (whether those whose hints are out are asked for), older_s (none that is younger), look (of each queue, how many of either kind are
--   looked at for one that the caller can run), most (no more in all), kinds and versions (what the caller can run, or NULL for all)
-- Locks: none. Index: outbox_released and outbox_owed, one probe per queue, as far as the first that the caller can run, and no further than the limit: all that
--   waits may be what only others can run.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() - make_interval(secs => CAST(:older_s AS float8)) AS instant
)
SELECT w.job_id FROM unnest(CAST(:queues AS text[])) AS q(queue) CROSS JOIN now AS n CROSS JOIN LATERAL (
  (SELECT o.job_id, o.since FROM (
    SELECT o.job_id, o.released_at AS since FROM {schema}.outbox AS o
    WHERE o.phase = 'released' AND o.queue = q.queue AND CAST(:out AS boolean) AND o.released_at <= n.instant
    ORDER BY o.released_at LIMIT CAST(:look AS integer)) AS o WHERE {runnable} ORDER BY o.since LIMIT 1)
  UNION ALL
  (SELECT o.job_id, o.due_at FROM (
    SELECT o.job_id, o.due_at, o.order_key FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = q.queue AND o.order_key <= n.instant AND o.due_at <= n.instant
    ORDER BY o.order_key, o.job_id LIMIT CAST(:look AS integer)) AS o WHERE {runnable} ORDER BY o.order_key, o.job_id LIMIT 1)
) AS w ORDER BY w.since LIMIT CAST(:most AS integer)
