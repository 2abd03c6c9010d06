-- How the jobs of one concurrency key are found; rows without a key are in none of these. Alone in their revision: to build them the outbox is read.
-- Those that are under way, or next.
CREATE INDEX IF NOT EXISTS outbox_key_taken ON {schema}.outbox (limit_key, limit_group, tenant)
  WHERE limit_key IS NOT NULL AND (phase <> 'owed' OR last_error = 'next of its key');
-- Those set aside, in the order in which they go if that is not the order of submission.
CREATE INDEX IF NOT EXISTS outbox_key_aside ON {schema}.outbox (limit_key, limit_group, tenant, order_key, job_id)
  WHERE limit_key IS NOT NULL AND phase = 'owed' AND last_error = 'waits for its key';
-- Those that run in the order of submission.
CREATE INDEX IF NOT EXISTS outbox_key_order ON {schema}.outbox (limit_key, limit_group, tenant, limit_place, job_id) WHERE limit_place IS NOT NULL;
