-- Purpose: read how long each relay's runways are, as those seen lately have told, and which queues have a bound of their own.
-- Transition: none
-- Parameters: live_s (how long ago a relay's sign may be)
-- Locks: none. Index: none: both tables are small and read whole.
SELECT e.key AS queue, p.name AS relay, CAST(e.value ->> 'hints' AS integer) AS hints, CAST(e.value ->> 'most' AS integer) AS most,
  CAST(e.value ->> 'set' AS boolean) AS is_set, CAST(extract(epoch FROM n.now - p.seen_at) AS float8) AS age_s
FROM {schema}.processes AS p CROSS JOIN (SELECT {schema}.clock() AS now) AS n CROSS JOIN LATERAL jsonb_each(p.runways) AS e
WHERE p.role = 'relay' AND p.seen_at > n.now - make_interval(secs => CAST(:live_s AS float8))
UNION ALL
SELECT q.name, NULL, NULL, q.runway, true, NULL FROM {schema}.queue_limits AS q WHERE q.runway IS NOT NULL
ORDER BY 1, 2 NULLS FIRST
