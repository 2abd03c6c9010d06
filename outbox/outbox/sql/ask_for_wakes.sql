-- Purpose: have writers notify from now on, until the session ends or leaves off. False: another relay's session is asking already.
-- Transition: none
-- Parameters: key
-- Locks: a session-level advisory lock, exclusive, never waited for. Index: none.
SELECT pg_try_advisory_lock(CAST(:key AS bigint)) AS mine
