-- Purpose: mark the chosen hints of a governed queue released. The caller holds the queue and the rows.
-- Transition: none (phase owed -> released)
-- Parameters: job_ids, rehint_after_s and rehint_max_s as in release.sql
-- Locks: outbox rows, which pick_low has locked. Index: primary key.
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1, due_at = {rehint_at}
FROM (SELECT {schema}.clock() AS instant) AS n
WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'owed', false)
RETURNING o.job_id, o.release_count, o.order_key, o.tenant, o.released_at
