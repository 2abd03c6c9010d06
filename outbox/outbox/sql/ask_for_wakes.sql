-- Purpose: have writers notify from now on, until the session ends or leaves off; and tell whether they do, for this session or another relay's.
--   Whatever else keeps the lock from being taken (a writer's look at it, for a moment) makes nobody notify.
-- Transition: none
-- Parameters: key
-- Locks: a session-level advisory lock, exclusive, never waited for. Index: none.
SELECT t.mine, t.mine OR EXISTS (
  SELECT 1 FROM pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND l.classid = CAST(CAST(:key AS bigint) >> 32 AS oid) AND l.objid = CAST(CAST(:key AS bigint) & 4294967295 AS oid)
) AS asked
FROM (SELECT pg_try_advisory_lock(CAST(:key AS bigint)) AS mine) AS t
