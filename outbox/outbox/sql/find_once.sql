-- Purpose: find an inbox key on a connection of its own, for a caller whose snapshot is too old to see it.
-- Transition: none
-- Parameters: key
-- Locks: none. Index: inbox_pkey.
SELECT json_build_array(encode(i.arguments_digest, 'hex'), i.result::text)::text AS holder
FROM {schema}.inbox AS i WHERE i.key = CAST(:key AS text)
