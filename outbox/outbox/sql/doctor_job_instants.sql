-- Purpose: find jobs with an instant that no driver can read back: infinite, or outside the years 1970 to 9998.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, concat_ws(', ', CASE WHEN (NOT isfinite(j.finished_at) OR j.finished_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z') THEN 'finished_at is ' || j.finished_at END, CASE WHEN (NOT isfinite(j.lease_started_at) OR j.lease_started_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z') THEN 'lease_started_at is ' || j.lease_started_at END, CASE WHEN (NOT isfinite(j.cancel_requested_at) OR j.cancel_requested_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z') THEN 'cancel_requested_at is ' || j.cancel_requested_at END) AS detail
FROM {schema}.jobs AS j
WHERE j.id >= CAST(:low AS uuid) AND j.id < CAST(:below AS uuid) AND ((NOT isfinite(j.finished_at) OR j.finished_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z') OR (NOT isfinite(j.lease_started_at) OR j.lease_started_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z') OR (NOT isfinite(j.cancel_requested_at) OR j.cancel_requested_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z'))
ORDER BY j.id DESC LIMIT CAST(:batch AS integer)
