-- Purpose: what pauses say of one queue, and the instant by which something must be due to go. There is none in a paused queue, nor in one that is governed where
--   the caller doesn't release by limits, or the other way round: then nothing is due, which the index says without a look. One condition (`clear`) for
--   all pauses of tenants and kinds, which the planner takes for mostly true: were it to expect few rows, it would read and sort all that is due.
-- Needs: nothing; it makes the members `paused` (shut, tenants, kinds) and `now` (instant, clear, clock: the time) of a WITH. The pauses, a few rows, are read whole. Index: queue_limits_pkey.
-- Parameters: queue, governed
paused AS MATERIALIZED (
  SELECT coalesce(bool_or(p.scope = 'everything' OR (p.scope = 'queue' AND p.name = :queue)), false)
      OR coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = :queue), false) <> CAST(:governed AS boolean) AS shut,
    {paused_names}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), now AS MATERIALIZED (
  SELECT CASE WHEN NOT p.shut THEN {schema}.clock() END AS instant, p.tenants = '{}' AND p.kinds = '{}' AS clear, {schema}.clock() AS clock FROM paused AS p
)
