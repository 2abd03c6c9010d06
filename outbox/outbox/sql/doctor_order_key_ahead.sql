-- Purpose: find owed hints whose place in line is later than priority and time can make it: others go first for ever.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, 'due at ' || o.due_at || ', in line at ' || o.order_key AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND o.phase = 'owed' AND isfinite(o.due_at) AND o.order_key > greatest(o.due_at, (SELECT {schema}.clock())) + interval '101 minutes'
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
