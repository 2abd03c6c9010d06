-- Purpose: find outbox rows with an instant that never comes, or that no driver can read back.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, concat_ws(', ', CASE WHEN (o.due_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') THEN 'due_at is ' || o.due_at END, CASE WHEN (o.order_key NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') THEN 'order_key is ' || o.order_key END, CASE WHEN (o.released_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') THEN 'released_at is ' || o.released_at END, CASE WHEN (o.lease_expires_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') THEN 'lease_expires_at is ' || o.lease_expires_at END) AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND ((o.due_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') OR (o.order_key NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') OR (o.released_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z') OR (o.lease_expires_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z'))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
