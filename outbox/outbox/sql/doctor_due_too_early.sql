-- Purpose: find owed hints that are due before their job may run: they would be given back again and again.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'due at ' || o.due_at || ', to run at ' || j.run_at AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND j.state = 'ready' AND o.phase = 'owed' AND o.due_at < j.run_at
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
