-- Purpose: name the queues that have hints out for longer than they should be, or of a sender that has gone, so that the broker can be asked whether it still
--   holds them.
-- Transition: none
-- Parameters: gone_after_s (how long a hint must have been out whose sender has gone)
-- Locks: none. Index: outbox_released. The server's list of sessions is read where a hint has been out for so long.
SELECT DISTINCT o.queue FROM {schema}.outbox AS o
WHERE o.phase = 'released' AND (o.due_at <= (SELECT {schema}.clock()) OR ({sender_gone}))
