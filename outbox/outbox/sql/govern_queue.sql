-- Purpose: note whether a queue is governed, by a limit of its own or a tenant's, and that its limits have changed just now.
-- Transition: none
-- Parameters: queue
-- Locks: the queue's row, which hold_queue has locked. Index: queue_limits_pkey; tenant_limits_pkey for the tenants of this queue.
UPDATE {schema}.queue_limits AS q
SET updated_at = {schema}.clock(), governed = (
    q.max_running IS NOT NULL OR q.tenant_max_running IS NOT NULL OR q.rate_per_s IS NOT NULL OR q.tenant_rate_per_s IS NOT NULL
    OR EXISTS (SELECT 1 FROM {schema}.tenant_limits AS t WHERE t.queue = q.name AND (t.max_running IS NOT NULL OR t.rate_per_s IS NOT NULL)))
WHERE q.name = CAST(:queue AS text)
RETURNING q.updated_at
