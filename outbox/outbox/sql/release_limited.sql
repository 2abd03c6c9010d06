-- Purpose: mark the chosen hints of a governed queue released, and write down what is left of its rates. The caller holds the queue and the rows.
-- Transition: none (phase owed -> released)
-- Parameters: queue, job_ids, rehint_after_s (when an unclaimed hint counts as lost: always the same, since it keeps a slot meanwhile);
--   queue_tokens (left to the queue, or NULL: it has no rate); tenants and tenant_tokens (the same for tenants that have one); now (as of when)
-- Locks: outbox rows, which pick_limited has locked; tenants' rows, under that of their queue. Index: primary keys.
WITH spent AS (
  UPDATE {schema}.queue_limits AS q SET tokens = CAST(:queue_tokens AS float8), tokens_at = CAST(:now AS timestamptz)
  WHERE q.name = CAST(:queue AS text) AND CAST(:queue_tokens AS float8) IS NOT NULL
  RETURNING q.name
), spent_by_tenants AS (
  INSERT INTO {schema}.tenant_limits (queue, name, tokens, tokens_at, updated_at)
  SELECT CAST(:queue AS text), s.name, s.tokens, CAST(:now AS timestamptz), CAST(:now AS timestamptz)
  FROM unnest(CAST(:tenants AS text[]), CAST(:tenant_tokens AS float8[])) AS s(name, tokens)
  ON CONFLICT (queue, name) DO UPDATE SET tokens = excluded.tokens, tokens_at = excluded.tokens_at
  RETURNING name
)
UPDATE {schema}.outbox AS o
SET phase = 'released', released_at = n.instant, release_count = o.release_count + 1,
  due_at = n.instant + make_interval(secs => CAST(:rehint_after_s AS float8))
FROM (SELECT {schema}.clock() AS instant) AS n
WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'owed', false)
RETURNING o.job_id, o.release_count, o.order_key
