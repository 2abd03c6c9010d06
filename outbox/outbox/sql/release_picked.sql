-- Purpose: mark the chosen hints of a governed queue released. The caller holds the queue and the rows.
-- Transition: none (phase owed -> released; what has to wait for its concurrency key is set aside instead, and returned with a count of 0)
-- Parameters: job_ids, rehint_after_s and rehint_max_s as in release.sql
-- Locks: outbox rows, which pick_low has locked. Index: primary key.
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1, due_at = {rehint_at},
  released_by = pg_catalog.pg_backend_pid()
FROM (SELECT {schema}.clock() AS instant) AS n
WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'owed', false)
RETURNING o.job_id, CASE o.phase WHEN 'released' THEN o.release_count ELSE 0 END, o.order_key, o.tenant, o.released_at
