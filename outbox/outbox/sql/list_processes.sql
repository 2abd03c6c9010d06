-- Purpose: list the processes that have announced themselves, each with how long ago and whether that was lately.
-- Transition: none
-- Parameters: live_s (how long ago the last sign may be)
-- Locks: none. Index: none: the table holds a row per process and is read whole.
SELECT p.name, p.role, p.host, p.pid, p.version, p.works_for, p.kinds, p.versions, p.key_ids, p.started_at, p.seen_at,
  CAST(extract(epoch FROM n.now - p.seen_at) AS float8) AS quiet_s,
  p.seen_at > n.now - make_interval(secs => CAST(:live_s AS float8)) AS live
FROM {schema}.processes AS p, (SELECT {schema}.clock() AS now) AS n
ORDER BY p.role, p.host, p.name
