-- Purpose: find leases that ended long ago and were not taken back: neither relay nor consumer keeps time.
-- Transition: none
-- Parameters: low and below (the range of ids), batch, grace_s
-- Locks: none. Index: primary keys, a range of one.
SELECT o.job_id::text AS subject, 'its lease ended at ' || o.lease_expires_at AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND o.phase = 'leased' AND o.lease_expires_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:grace_s AS float8))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
