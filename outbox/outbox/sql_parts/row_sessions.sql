-- Purpose: the sessions of this database, beside our own, whose open transaction has locked a row last. That may be long over: then no session holds its
--   transaction's id. A number that stands for several holders at once is no transaction's, and must not name one that has the same.
-- Needs: h (xid: the row's xmax; place: its tableoid); it makes l (the lock) and s (the session). Other users' sessions have no begin for whoever isn't a
--   member of pg_read_all_stats.
-- Parameters: none
JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = h.xid AND l.granted AND l.pid <> pg_catalog.pg_backend_pid()
  AND EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS t WHERE t.pid = l.pid AND t.locktype = 'relation' AND t.relation = h.place)
JOIN pg_catalog.pg_stat_activity AS s ON s.pid = l.pid AND s.datname = pg_catalog.current_database()
