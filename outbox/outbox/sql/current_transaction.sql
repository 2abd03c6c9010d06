-- Purpose: tell which transaction this is, so that one that user code has ended inside is noticed before the commit.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
SELECT CAST(pg_current_xact_id_if_assigned() AS text) AS transaction_id
