-- Purpose: take the walk through old jobs to go on with it, unless somebody else has it, or it has ended less than a pause ago. One that will
--   only have ended stems from a clock that has gone back since.
-- Transition: none
-- Parameters: pause_s (between two walks)
-- Locks: the walk's row, SKIP LOCKED; held until the transaction ends. Index: walks_pkey.
SELECT w.place FROM {schema}.walks AS w
WHERE w.name = 'retention' AND (w.ended_at IS NULL OR w.ended_at > {schema}.clock()
  OR w.ended_at + make_interval(secs => CAST(:pause_s AS float8)) <= {schema}.clock())
FOR UPDATE SKIP LOCKED
