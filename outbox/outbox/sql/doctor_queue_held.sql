-- Purpose: find sessions that keep the limits of a governed queue locked for long, so that nothing of it is released: a change that nobody has committed.
-- Transition: none
-- Parameters: grace_s (for how long), batch
-- Locks: none. Index: none: the table holds a row for each queue that somebody has set limits for, and the rest are views of the server's state. Other
--   users' sessions have no begin for whoever isn't a member of pg_read_all_stats, and are not told.
SELECT 'queue ' || h.name AS subject, concat_ws(', ', 'session ' || s.pid, 'user ' || s.usename, 'application ' || nullif(s.application_name, ''), s.state,
  'its transaction began at ' || s.xact_start) AS detail
FROM (SELECT q.name, q.xmax AS xid, q.tableoid AS place FROM {schema}.queue_limits AS q WHERE q.governed AND q.xmax <> '0') AS h
{row_sessions}
WHERE s.xact_start <= pg_catalog.clock_timestamp() - make_interval(secs => CAST(:grace_s AS float8))
ORDER BY s.xact_start LIMIT CAST(:batch AS integer)
