-- Purpose: read indexes of these names as they stand: which table each is on, its definition, and whether its build has come to its end.
-- Parameters: schema, names. Locks: none. The search path holds the schema alone, so that definitions name it nowhere.
SELECT t.relname AS table_name, x.relname AS name, pg_get_indexdef(i.indexrelid, 0, true) AS definition, i.indisvalid AND i.indisready AS is_usable
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = x.relnamespace
WHERE n.nspname = :schema AND x.relname = ANY (CAST(:names AS text[]))
ORDER BY x.relname
