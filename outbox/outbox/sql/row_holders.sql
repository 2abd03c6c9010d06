-- Purpose: name the sessions whose open transactions hold what a waiting job needs: its outbox row, or the row of its queue's limits, without which nothing of a
--   governed queue is released. Only of transactions that are old enough: a release or a claim holds them for milliseconds.
-- Transition: none
-- Parameters: job_id, queue (the job's), old_s
-- Locks: none. Index: primary keys; the server's lock table, which is read whole only where a row's last lock is on record. That may be long over: then
--   no session holds its transaction's id. Other users' sessions have no begin for whoever isn't a member of pg_read_all_stats, and count at any age.
SELECT h.what, s.pid, s.application_name, s.usename, s.xact_start AS since,
  CAST(extract(epoch FROM pg_catalog.clock_timestamp() - s.xact_start) AS float8) AS age_s
FROM (
  SELECT 'job' AS what, o.xmax AS xid, o.tableoid AS place FROM {schema}.outbox AS o
  WHERE o.job_id = CAST(:job_id AS uuid) AND o.xmax <> '0'
  UNION ALL
  SELECT 'queue', q.xmax, q.tableoid FROM {schema}.queue_limits AS q
  WHERE q.name = CAST(:queue AS text) AND q.governed AND q.xmax <> '0'
) AS h
{row_sessions}
WHERE coalesce(s.xact_start <= pg_catalog.clock_timestamp() - make_interval(secs => CAST(:old_s AS float8)), true)
ORDER BY h.what, s.xact_start
