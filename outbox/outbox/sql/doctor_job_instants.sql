-- Purpose: find jobs with an instant that no driver can read back: infinite, or outside the years 1970 to 9998.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, concat_ws(', ', 'finished_at is ' || b.finished, 'lease_started_at is ' || b.started,
  'cancel_requested_at is ' || b.asked) AS detail
FROM {schema}.jobs AS j, LATERAL (
  SELECT CASE WHEN j.finished_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z' THEN j.finished_at END AS finished,
    CASE WHEN j.lease_started_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z' THEN j.lease_started_at END AS started,
    CASE WHEN j.cancel_requested_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z' THEN j.cancel_requested_at END AS asked
) AS b
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND num_nonnulls(b.finished, b.started, b.asked) > 0
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
