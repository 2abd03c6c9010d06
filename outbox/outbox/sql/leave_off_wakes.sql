-- Purpose: let writers do without notifying again.
-- Transition: none
-- Parameters: key
-- Locks: gives back the advisory lock of ask_for_wakes. Index: none.
SELECT pg_advisory_unlock(CAST(:key AS bigint)) AS given_back
