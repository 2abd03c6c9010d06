-- Purpose: find jobs whose hint is out but has not led to a claim for a while, for a consumer that gets no hints.
-- Transition: none
-- Parameters: queues, age_s, batch
-- Locks: none: the claim decides. Index: outbox_released.
SELECT o.job_id FROM {schema}.outbox AS o
WHERE o.phase = 'released' AND o.queue = ANY (CAST(:queues AS text[]))
  AND o.released_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:age_s AS float8))
ORDER BY o.order_key LIMIT CAST(:batch AS integer)
