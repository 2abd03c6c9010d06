-- Purpose: find jobs whose hint is out but has not led to a claim for a while, for a consumer that gets no hints.
-- Transition: none
-- Parameters: queues, age_s, since (where the look begins, or NULL), batch, kinds and versions (what the caller can run, or NULL for all)
-- Locks: none: the claim decides. Index: outbox_released, from `since` on in each queue.
SELECT o.job_id FROM {schema}.outbox AS o
WHERE o.phase = 'released' AND o.queue = ANY (CAST(:queues AS text[]))
  AND o.released_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
  AND o.released_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:age_s AS float8))
  AND {runnable}
ORDER BY o.order_key LIMIT CAST(:batch AS integer)
