-- Purpose: wake a relay that sleeps, as an insert into the outbox does, without one: the trigger is each statement's.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT NULL, NULL, NULL, NULL, NULL WHERE false
