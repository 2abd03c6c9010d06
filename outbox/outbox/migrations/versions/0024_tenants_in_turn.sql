-- Each tenant's line in a queue, so that a crowded queue can be served tenant by tenant. Alone in its revision: to build it the outbox is read, and
-- nothing else may be held meanwhile. The queue has another collation than in outbox_owed, so that no statistics let the planner take that one and sort.
CREATE INDEX IF NOT EXISTS outbox_owed_tenant ON {schema}.outbox (queue COLLATE "C", tenant, order_key, job_id) WHERE phase = 'owed';
