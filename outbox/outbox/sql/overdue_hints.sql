-- Purpose: name the queues that have hints out for longer than they should be, so that the broker can be asked whether it still holds them.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: outbox_released.
SELECT DISTINCT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'released' AND o.due_at <= (SELECT {schema}.clock())
