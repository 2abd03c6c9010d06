-- Purpose: read what keeps one waiting job from its turn among those of its concurrency key. No row: it has none, or nothing is owed to it.
-- Transition: none
-- Parameters: job_id
-- Locks: none. Index: primary key, outbox_key_taken, outbox_key_order, dead_letters_limit_key; each limit has an order.
SELECT m.limit_max, k.under_way, b.job_id AS before_id, d.job_id AS failed_id, d.failed_at, n.job_id AS next_id, coalesce(w.job_id, f.job_id) AS lower_id
FROM {schema}.outbox AS m CROSS JOIN LATERAL (
  SELECT count(*) AS under_way FROM {schema}.outbox AS o
  WHERE o.limit_key = m.limit_key AND o.limit_group = m.limit_group AND o.tenant = m.tenant AND o.phase <> 'owed' AND o.job_id <> m.job_id
    AND (o.phase = 'released' OR o.lease_expires_at > (SELECT {schema}.clock()))
) AS k LEFT JOIN LATERAL (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.limit_key = m.limit_key AND o.limit_group = m.limit_group AND o.tenant = m.tenant AND o.limit_place IS NOT NULL
    AND (o.limit_place, o.job_id) < (m.limit_place, m.job_id)
  ORDER BY o.limit_place, o.job_id LIMIT 1
) AS b ON true LEFT JOIN LATERAL (
  SELECT l.job_id, l.failed_at FROM {schema}.dead_letters AS l
  WHERE l.limit_key = m.limit_key AND l.limit_group = m.limit_group AND l.tenant = m.tenant AND l.discarded_at IS NULL
    AND (l.limit_place, l.job_id) < (m.limit_place, m.job_id)
  ORDER BY l.limit_place, l.job_id LIMIT 1
) AS d ON true LEFT JOIN LATERAL (
  -- Due, and put back in line no longer ago than it counts (see {schema}.free_key).
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.limit_key = m.limit_key AND o.limit_group = m.limit_group AND o.tenant = m.tenant AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
    AND o.phase = 'owed' AND m.last_error = 'waits for its key'
    AND o.due_at <= (SELECT {schema}.clock()) AND o.limit_next_at > (SELECT {schema}.clock()) - interval '5 s'
  ORDER BY o.limit_next_at DESC, o.job_id LIMIT 1
) AS n ON true LEFT JOIN LATERAL (
  -- The first that waits by a lower number, which {schema}.admit_by_key lets nobody pass who goes by a higher one; then the same of an order.
  SELECT l.job_id FROM (
    SELECT o.job_id, o.limit_max, o.order_key FROM {schema}.outbox AS o
    WHERE o.limit_key = m.limit_key AND o.limit_group = m.limit_group AND o.tenant = m.tenant AND o.phase = 'owed'
      AND o.last_error = 'waits for its key' AND o.limit_place IS NULL
    ORDER BY o.order_key, o.job_id LIMIT 1
  ) AS l
  WHERE m.limit_place IS NULL AND k.under_way BETWEEN 1 AND m.limit_max - 1 AND coalesce(l.limit_max, 1) < m.limit_max
    AND l.order_key - {key_aside_for} < m.order_key - CASE WHEN m.last_error = 'waits for its key' THEN {key_aside_for} ELSE interval '0' END
) AS w ON true LEFT JOIN LATERAL (
  SELECT l.job_id FROM (
    SELECT o.job_id, o.limit_place, o.order_key, o.phase, o.last_error FROM {schema}.outbox AS o
    WHERE o.limit_key = m.limit_key AND o.limit_group = m.limit_group AND o.tenant = m.tenant AND o.limit_place IS NOT NULL
    ORDER BY o.limit_place, o.job_id LIMIT 1
  ) AS l
  WHERE m.limit_place IS NULL AND k.under_way BETWEEN 1 AND m.limit_max - 1 AND l.phase = 'owed' AND l.last_error = 'waits for its key'
    AND l.order_key - {key_aside_for} < m.order_key - CASE WHEN m.last_error = 'waits for its key' THEN {key_aside_for} ELSE interval '0' END
    AND NOT EXISTS (
      SELECT 1 FROM {schema}.dead_letters AS e
      WHERE e.limit_key = m.limit_key AND e.limit_group = m.limit_group AND e.tenant = m.tenant AND e.discarded_at IS NULL
        AND (e.limit_place, e.job_id) < (l.limit_place, l.job_id))
) AS f ON true
WHERE m.job_id = CAST(:job_id AS uuid) AND m.limit_key IS NOT NULL
