-- Purpose: find jobs that are set aside for their concurrency key though no other job of it is under way or has become the next one lately, and none stands in
--   their way. One that has been next for longer, or is not due, can't go: looks at the keys would have gone past it.
-- Transition: none
-- Parameters: low and below (the range of ids), grace_s, batch
-- Locks: none. Index: primary key, a range of it; outbox_key_taken, outbox_key_order, dead_letters_limit_key.
SELECT o.job_id::text AS subject, 'waits for its key ' || o.limit_key || ', of which nothing is under way' AS detail
FROM {schema}.outbox AS o
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND o.phase = 'owed' AND coalesce(o.last_error = 'waits for its key', false)
  AND o.order_key > {key_aside_from}
  AND o.due_at - {key_aside_for} < (SELECT {schema}.clock()) - make_interval(secs => CAST(:grace_s AS float8))
  AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS t
    WHERE t.limit_key = o.limit_key AND t.limit_group = o.limit_group AND t.tenant = o.tenant AND (t.phase <> 'owed' OR t.last_error = 'next of its key')
      AND (t.phase <> 'owed' OR coalesce(t.due_at <= (SELECT {schema}.clock())
        AND t.limit_next_at > (SELECT {schema}.clock()) - make_interval(secs => CAST(:grace_s AS float8)), false)))
  AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS b
    WHERE b.limit_key = o.limit_key AND b.limit_group = o.limit_group AND b.tenant = o.tenant AND b.limit_place IS NOT NULL
      AND (b.limit_place, b.job_id) < (o.limit_place, o.job_id))
  AND NOT EXISTS (SELECT 1 FROM {schema}.dead_letters AS d
    WHERE d.limit_key = o.limit_key AND d.limit_group = o.limit_group AND d.tenant = o.tenant AND d.discarded_at IS NULL
      AND (d.limit_place, d.job_id) < (o.limit_place, o.job_id))
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
