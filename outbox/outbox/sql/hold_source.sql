-- Purpose: have the syncs of one source go one after the other, and tell whether what is read from here on is what stands.
-- Transition: none
-- Parameters: key (of the source)
-- Locks: an advisory lock, exclusive, until the transaction ends; waits for another sync of the source. Relays don't ask for it. Index: none.
SELECT current_setting('transaction_isolation') AS isolation, CAST(pg_advisory_xact_lock(CAST(:key AS bigint)) AS text) AS held
