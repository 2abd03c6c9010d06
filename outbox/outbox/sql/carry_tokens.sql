-- Purpose: write down, for all tenants of a queue that go by the rate that it gives to each, what is left of that rate, just before it changes or goes: as much as it has
--   earned until now, and no more than the next one holds. Those of which nothing is written down (name '') are one of them.
-- Transition: none
-- Parameters: queue; rate_per_s and burst (the rate that held until now); next_burst (of the next one, or NULL: there is none)
-- Locks: tenants' rows, under that of their queue, which everybody holds who waits for one of them: in any order. Who passes them (forget_tokens, set_limits_back) skips what is locked.
--   Index: tenant_limits_pkey for the tenants of this queue.
WITH now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), carried AS (
  UPDATE {schema}.tenant_limits AS t
  SET tokens_at = (SELECT n.instant FROM now AS n), tokens = least(
    -- Nothing is earned while a clock goes back.
    t.tokens + CAST(:rate_per_s AS float8) * greatest(CAST(extract(epoch FROM (SELECT n.instant FROM now AS n) - t.tokens_at) AS float8), 0),
    CAST(:burst AS integer), CAST(:next_burst AS integer))
  WHERE t.queue = CAST(:queue AS text) AND t.rate_per_s IS NULL AND t.tokens IS NOT NULL
  RETURNING 1
)
SELECT count(*) AS tenants FROM carried
