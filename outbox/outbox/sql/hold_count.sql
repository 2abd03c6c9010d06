-- Purpose: take the count of all queues for this transaction, unless somebody else has it or it is not due yet.
-- Transition: none
-- Parameters: longest_s (no count is put off for longer: one that would be stems from a clock that has gone back since)
-- Locks: the count's row, SKIP LOCKED; held until the transaction ends. Index: queue_count_pkey.
SELECT n.now, CAST(extract(epoch FROM n.now - c.counted_at) AS float8) AS since_s
FROM {schema}.queue_count AS c, (SELECT {schema}.clock() AS now) AS n
WHERE c.name = 'figures' AND (c.next_at <= n.now OR c.next_at > n.now + make_interval(secs => CAST(:longest_s AS float8)))
FOR UPDATE OF c SKIP LOCKED
