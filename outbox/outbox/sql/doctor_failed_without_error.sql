-- Purpose: find failed jobs that do not say why.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'failed without an error' AS detail
FROM {schema}.jobs AS j
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND j.state = 'failed' AND (j.last_error_class IS NULL OR j.last_error_code IS NULL)
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
