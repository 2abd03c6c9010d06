-- Purpose: write down what a release has left of the rates of a governed queue, which the caller holds.
-- Transition: none
-- Parameters: queue; queue_tokens (left to the queue, or NULL: it has no rate); tenants and tenant_tokens (the same for tenants that have one); now (as of when)
-- Locks: the queue's row, which hold_limits has locked; tenants' rows, under it. Index: primary keys.
WITH spent AS (
  UPDATE {schema}.queue_limits AS q SET tokens = CAST(:queue_tokens AS float8), tokens_at = CAST(:now AS timestamptz)
  WHERE q.name = CAST(:queue AS text) AND CAST(:queue_tokens AS float8) IS NOT NULL
  RETURNING q.name
)
INSERT INTO {schema}.tenant_limits (queue, name, tokens, tokens_at, updated_at)
SELECT CAST(:queue AS text), s.name, s.tokens, CAST(:now AS timestamptz), CAST(:now AS timestamptz)
FROM unnest(CAST(:tenants AS text[]), CAST(:tenant_tokens AS float8[])) AS s(name, tokens)
ON CONFLICT (queue, name) DO UPDATE SET tokens = excluded.tokens, tokens_at = excluded.tokens_at
RETURNING name
