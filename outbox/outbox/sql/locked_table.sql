-- Purpose: name a table of ours for whose lock a session waits, for whoever has found that nothing moves.
-- Transition: none
-- Parameters: schema (its name)
-- Locks: none. Index: the server's lock table, which is read whole; it is as long as there are open transactions.
SELECT c.relname AS name FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
WHERE NOT l.granted AND l.locktype = 'relation' AND s.nspname = CAST(:schema AS text) AND c.relkind IN ('r', 'p')
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
ORDER BY c.relname LIMIT 1
