-- Purpose: whether the session that released a hint has ended a while ago, so that nobody may ever have sent it. Behind a pooler, which keeps sessions, it never
--   seems so; of a hint that was released before a restart of the server it always does.
-- Needs: o (a released outbox row)
-- Parameters: gone_after_s (how long the hint must have been out)
o.released_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:gone_after_s AS float8))
  AND o.released_by <> ALL (array_remove(ARRAY(
    SELECT pg_catalog.pg_stat_get_backend_pid(b.number) FROM pg_catalog.pg_stat_get_backend_idset() AS b(number)), NULL))
