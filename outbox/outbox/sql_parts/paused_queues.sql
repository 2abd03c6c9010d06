-- Purpose: whether everything is paused, and the names of the queues that are.
-- Needs: p (pauses in force, all rows)
-- Parameters: none
coalesce(bool_or(p.scope = 'everything'), false) AS everything,
    coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'queue'), '{}') AS queues
