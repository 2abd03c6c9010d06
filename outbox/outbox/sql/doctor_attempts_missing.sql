-- Purpose: find jobs whose ended attempts are not numbered 1 to n without a gap, or go beyond the count.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one; each job's attempts are counted in the index alone.
SELECT j.id::text AS subject, 'counts ' || j.attempt_count || ' attempts; recorded: ' || coalesce((
    SELECT left(string_agg(a.number::text, ' ' ORDER BY a.number), 100) FROM {schema}.attempts AS a WHERE a.job_id = j.id), 'none') AS detail
FROM {schema}.jobs AS j, LATERAL (
  SELECT count(*) FILTER (WHERE a.number <= j.attempt_count - (j.state = 'running')::integer) AS within,
    count(*) FILTER (WHERE a.number > j.attempt_count) AS beyond
  FROM {schema}.attempts AS a WHERE a.job_id = j.id
) AS h
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid)
  AND (h.within <> j.attempt_count - (j.state = 'running')::integer OR h.beyond > 0)
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
