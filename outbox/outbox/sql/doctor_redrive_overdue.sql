-- Purpose: find redrives whose turn was due long ago: no relay moves them, or somebody's open transaction holds them.
-- Transition: none
-- Parameters: grace_s, batch
-- Locks: none. Index: redrive_operations_due.
SELECT r.id::text AS subject, 'its turn was due ' || CAST(extract(epoch FROM n.now - r.next_at) AS bigint) || ' s ago; ' || r.redriven + r.refused || ' of '
  || r.total || ' jobs have had theirs' AS detail
FROM {schema}.redrive_operations AS r, (SELECT {schema}.clock() AS now) AS n
WHERE r.state = 'running' AND r.next_at <= n.now - make_interval(secs => CAST(:grace_s AS float8))
ORDER BY r.next_at LIMIT CAST(:batch AS integer)
