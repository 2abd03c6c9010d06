-- Purpose: find jobs that wait for an instant which the database's clock had reached before it was set back: when they were submitted, or when their
--   last attempt ended, lies in the future, and what they wait for follows from it. An instant that somebody asked for is none of these.
-- Transition: none
-- Parameters: low and below (the range of ids), grace_s, batch
-- Locks: none. Index: primary keys, a range of one; attempts by job and number.
SELECT j.id::text AS subject, 'to run at ' || j.run_at || ', by a clock that now says ' || n.now AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id, (SELECT {schema}.clock() AS now) AS n
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND j.state = 'ready' AND o.phase = 'owed'
  AND j.run_at > n.now + make_interval(secs => CAST(:grace_s AS float8))
  AND (j.run_at = j.created_at OR EXISTS (SELECT 1 FROM {schema}.attempts AS a WHERE a.job_id = j.id AND a.number = j.attempt_count
    AND a.ended_at > n.now + make_interval(secs => CAST(:grace_s AS float8)) AND j.run_at >= a.ended_at))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
