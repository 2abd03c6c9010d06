-- Purpose: find outbox rows with an instant that never comes, or that no driver can read back.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary key, a range of it.
SELECT o.job_id::text AS subject, concat_ws(', ', 'due_at is ' || b.due, 'order_key is ' || b.place, 'released_at is ' || b.released,
  'lease_expires_at is ' || b.expires) AS detail
FROM {schema}.outbox AS o, LATERAL (
  SELECT CASE WHEN o.due_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z' THEN o.due_at END AS due,
    CASE WHEN o.order_key NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z' THEN o.order_key END AS place,
    CASE WHEN o.released_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z' THEN o.released_at END AS released,
    CASE WHEN o.lease_expires_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z' THEN o.lease_expires_at END AS expires
) AS b
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND num_nonnulls(b.due, b.place, b.released, b.expires) > 0
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
