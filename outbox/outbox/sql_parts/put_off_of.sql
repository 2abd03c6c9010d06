-- Purpose: of each queue, for how long jobs have been due that are yet owed for later, since who took the hint can't run them, or nobody took it. They went to
--   the end of the line: where more stand before them, the age of these tells enough.
-- Needs: figures (queue), now (instant)
-- Parameters: none
SELECT f.queue, CAST(extract(epoch FROM max(n.instant - {due_since})) AS float8) AS due_s
  FROM figures AS f CROSS JOIN now AS n CROSS JOIN LATERAL (
    SELECT o.job_id, o.due_at FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = f.queue AND o.order_key <= n.instant ORDER BY o.order_key, o.job_id LIMIT 20
  ) AS o CROSS JOIN LATERAL (SELECT j.* FROM {schema}.jobs AS j WHERE j.id = o.job_id LIMIT 1) AS j
  WHERE o.due_at > n.instant AND j.run_at <= n.instant
  GROUP BY f.queue
