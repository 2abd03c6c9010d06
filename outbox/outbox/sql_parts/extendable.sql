-- Purpose: whether a lease may still be extended: until it has expired; and after that only where its slot can't have been given to another one.
-- Needs: o (the outbox row)
CASE WHEN o.lease_expires_at > {schema}.clock() THEN true
  ELSE o.limit_key IS NULL AND NOT coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = o.queue), false) END
