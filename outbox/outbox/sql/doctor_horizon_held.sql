-- Purpose: find what keeps PostgreSQL from cleaning up behind jobs: old transactions, forgotten prepared ones, replication slots nobody reads.
-- Transition: none
-- Parameters: old_s (how old a transaction may be), batch
-- Locks: none. Index: none: these are views of the server's state. A role without pg_read_all_stats sees its own sessions only.
SELECT h.subject, h.detail FROM (
  SELECT 'session ' || s.pid AS subject, concat_ws(', ', 'user ' || s.usename, 'application ' || nullif(s.application_name, ''), s.state,
      'its transaction began at ' || s.xact_start) AS detail, s.xact_start AS since
  FROM pg_catalog.pg_stat_activity AS s
  WHERE (s.backend_xmin IS NOT NULL OR s.backend_xid IS NOT NULL) AND s.pid <> pg_catalog.pg_backend_pid()
    AND s.backend_type = 'client backend'
    AND s.xact_start <= pg_catalog.clock_timestamp() - make_interval(secs => CAST(:old_s AS float8))
  UNION ALL
  SELECT 'prepared transaction ' || p.gid, 'of ' || p.owner || ' in ' || p.database || ', prepared at ' || p.prepared, p.prepared
  FROM pg_catalog.pg_prepared_xacts AS p
  WHERE p.prepared <= pg_catalog.clock_timestamp() - make_interval(secs => CAST(:old_s AS float8))
  UNION ALL
  SELECT 'replication slot ' || r.slot_name, 'is read by nobody and holds back what may be cleaned up', NULL
  FROM pg_catalog.pg_replication_slots AS r
  WHERE NOT r.active AND (r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL)
) AS h
ORDER BY h.since NULLS LAST LIMIT CAST(:batch AS integer)
