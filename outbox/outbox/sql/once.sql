-- Purpose: claim an inbox key in the caller's transaction, or tell under which arguments it was used, and with what result.
-- Transition: none
-- Parameters: key, digest (hexadecimal, of the arguments)
-- Locks: waits only for a transaction that has inserted the same key and not yet ended. Index: inbox_pkey.
SELECT {schema}.once_1(:key, :digest)
