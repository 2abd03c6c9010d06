-- Purpose: of each queue, for how long jobs have been due whose hints are out: of those released longest ago, by when their jobs were due, since a hint that
--   goes out again begins anew, its job does not.
-- Needs: figures (queue), now (instant)
-- Parameters: none
SELECT f.queue, CAST(extract(epoch FROM max(n.instant - {due_since})) AS float8) AS due_s
  FROM figures AS f CROSS JOIN now AS n CROSS JOIN LATERAL (
    SELECT o.job_id FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.queue = f.queue ORDER BY o.released_at LIMIT 5
  ) AS o
  JOIN {schema}.jobs AS j ON j.id = o.job_id
  GROUP BY f.queue
