-- Purpose: whether nothing holds an ended job's row or payload beyond its time: no set of jobs waits to see how it ended, or might need it redriven; no person still
--   has to look at an effect of it, after which it may have to go on; its failure does not block its concurrency key until a
--   person has looked at it; and nobody has asked for its redrive. What a redrive that is over has left behind keeps nothing.
-- Needs: s (id, attempt_count, finished_at). Subqueries, since no plan can turn them into joins that read what all sets await, or all effects. Index: join_members_job, effects_pkey,
--   dead_letters_pkey, redrive_items_job, redrive_operations_pkey.
-- Parameters: none
(SELECT true FROM {schema}.join_members AS m WHERE m.job_id = s.id AND m.seen IS NULL LIMIT 1) IS NULL
    AND (SELECT true FROM {schema}.effects AS e WHERE e.job_id = s.id AND e.state IN ('pending', 'uncertain') LIMIT 1) IS NULL
    AND (SELECT true FROM {schema}.dead_letters AS d WHERE d.job_id = s.id AND d.limit_key IS NOT NULL AND d.discarded_at IS NULL LIMIT 1) IS NULL
    AND (SELECT true FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
      WHERE i.job_id = s.id AND {waits_for_redrive} LIMIT 1) IS NULL
