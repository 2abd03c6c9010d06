-- Purpose: find pauses that have lasted for long: somebody may have forgotten them.
-- Transition: none
-- Parameters: paused_s, batch
-- Locks: none. Index: none: the table holds a row per pause and is read whole.
SELECT rtrim(p.scope || ' ' || p.name) AS subject, 'paused since ' || p.at || ' by ' || p.actor || ': ' || p.reason AS detail
FROM {schema}.pauses AS p
WHERE p.resumed_at IS NULL AND p.at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:paused_s AS float8))
ORDER BY p.at LIMIT CAST(:batch AS integer)
