-- Purpose: fail unless this is still the transaction in which the fence was passed. Sent in one message with its COMMIT, which a failure
--   keeps from being run: nothing that follows an end by user code's own hand is committed.
-- Transition: none
-- Parameters: transaction_id
-- Locks: none. Index: none.
SELECT 1 / CAST(pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM CAST(:transaction_id AS xid8) AS integer) AS same
