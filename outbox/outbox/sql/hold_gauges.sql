-- Purpose: have one process show what is in the tables: take that over, or go on with it, unless another one has it.
-- Transition: none
-- Parameters: holder, hold_s (for how long nobody else takes it over), longest_s (no one has it for longer: who would stems from a clock that
--   has gone back since)
-- Locks: the row of the gauges, SKIP LOCKED, for one short statement. Index: queue_count_pkey; no indexed column changes.
UPDATE {schema}.queue_count AS c
SET holder = CAST(:holder AS text), next_at = n.now + make_interval(secs => CAST(:hold_s AS float8))
FROM (SELECT {schema}.clock() AS now) AS n
WHERE c.name = (
  SELECT g.name FROM {schema}.queue_count AS g
  WHERE g.name = 'gauges' AND (g.holder = CAST(:holder AS text) OR g.next_at <= {schema}.clock()
    OR g.next_at > {schema}.clock() + make_interval(secs => CAST(:longest_s AS float8)))
  FOR UPDATE SKIP LOCKED
)
RETURNING c.name
