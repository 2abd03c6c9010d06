-- Purpose: find failed jobs that hold up the later ones of their concurrency key, as these are declared: of each key the first, which a person has to see to
--   before any other of it.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: dead_letters_pkey, a range of it; outbox_key_order and dead_letters_limit_key, one probe each; of those that wait a thousand are counted.
SELECT d.job_id::text AS subject, 'has failed, and ' || CASE w.waiting WHEN 1000 THEN '1000 or more jobs' WHEN 1 THEN '1 job' ELSE w.waiting || ' jobs' END
  || ' of its key ' || d.limit_key || ' after it may not start' AS detail
FROM {schema}.dead_letters AS d CROSS JOIN LATERAL (
  SELECT count(*) AS waiting FROM (
    SELECT 1 FROM {schema}.outbox AS o
    WHERE o.limit_key = d.limit_key AND o.limit_group = d.limit_group AND o.tenant = d.tenant AND o.limit_place IS NOT NULL
      AND (o.limit_place, o.job_id) > (d.limit_place, d.job_id)
    ORDER BY o.limit_key, o.limit_group, o.tenant, o.limit_place, o.job_id LIMIT 1000
  ) AS behind
) AS w
WHERE d.job_id >= CAST(:low AS uuid) AND d.job_id < CAST(:below AS uuid) AND d.limit_place IS NOT NULL AND d.discarded_at IS NULL AND w.waiting > 0
  AND NOT EXISTS (
    SELECT 1 FROM {schema}.dead_letters AS f
    WHERE f.limit_key = d.limit_key AND f.limit_group = d.limit_group AND f.tenant = d.tenant AND f.discarded_at IS NULL
      AND (f.limit_place, f.job_id) < (d.limit_place, d.job_id))
ORDER BY d.job_id DESC LIMIT CAST(:batch AS integer)
