-- Purpose: find hints that went out, were not claimed, and were not owed again for long.
-- Transition: none
-- Parameters: low and below (the range of ids), batch, grace_s
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, 'released at ' || o.released_at || ', to be owed again at ' || o.due_at AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND o.phase = 'released' AND o.due_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:grace_s AS float8))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
