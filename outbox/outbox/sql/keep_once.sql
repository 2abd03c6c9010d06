-- Purpose: keep the result of the work behind an inbox key, in the transaction that has claimed it. No row: the claim was rolled back, or there is a result,
--   which a repeat may have been given already.
-- Transition: none
-- Parameters: key, result (JSON text)
-- Locks: the key's row, which this transaction has inserted. Index: inbox_pkey.
UPDATE {schema}.inbox AS i SET result = CAST(CAST(:result AS text) AS jsonb) WHERE i.key = CAST(:key AS text) AND i.result IS NULL
RETURNING i.key
