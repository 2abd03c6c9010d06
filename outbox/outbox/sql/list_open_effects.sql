-- Purpose: list the effects whose outcome is unknown, with their jobs, those first that have waited longest for an answer.
-- Transition: none
-- Parameters: states (pending, uncertain, or both), batch
-- Locks: none. Index: effects_open, in its own order.
SELECT {effect_columns}
FROM {schema}.effects AS e JOIN {schema}.jobs AS j ON j.id = e.job_id
WHERE e.state IN ('pending', 'uncertain') AND e.state = ANY (CAST(:states AS text[]))
ORDER BY e.created_at LIMIT CAST(:batch AS integer)
