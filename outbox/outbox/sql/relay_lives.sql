-- Purpose: tell whether a relay was seen lately, which then looks after what consumers look after only where there is none.
-- Transition: none
-- Parameters: live_s (how long ago its last sign may be)
-- Locks: none. Index: none: the table holds a row per process and is read whole.
SELECT EXISTS (
  SELECT 1 FROM {schema}.processes AS p
  WHERE p.role = 'relay' AND p.seen_at > {schema}.clock() - make_interval(secs => CAST(:live_s AS float8))) AS lives
