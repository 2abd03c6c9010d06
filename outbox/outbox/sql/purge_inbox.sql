-- Purpose: delete the inbox keys that nobody has to honour any more, oldest first.
-- Transition: none
-- Parameters: keep_s (keys younger than this stay), batch
-- Locks: the keys' rows, SKIP LOCKED. Index: inbox_age, in its own order and no further than what is due: the clock stands in a sub-select, since
--   no index can be asked for a function that may change while it is read; inbox_pkey.
DELETE FROM {schema}.inbox AS i
WHERE i.key = ANY (ARRAY(
  SELECT o.key FROM {schema}.inbox AS o
  WHERE o.created_at < (SELECT {schema}.clock() - make_interval(secs => CAST(:keep_s AS float8)))
  ORDER BY o.created_at LIMIT CAST(:batch AS integer) FOR UPDATE SKIP LOCKED
))
RETURNING i.key
