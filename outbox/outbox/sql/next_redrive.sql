-- Purpose: take the redrive whose turn it is, for this transaction.
-- Transition: none
-- Parameters: none
-- Locks: the operation's row, SKIP LOCKED: one relay at a time advances it, and who pauses it waits for the turn's end.
-- Index: redrive_operations_due; redrive_items_canary.
SELECT r.id, r.rate_per_s, r.canary, r.stop_on_same_code, r.failure_ratio, r.ratio_at_least, r.total, r.redriven, r.refused, r.succeeded,
  r.failed, r.otherwise, r.canaries_done, r.idle_turns, r.failed_turns, c.now,
  (SELECT count(*) FROM {schema}.redrive_items AS i WHERE i.operation_id = r.id AND i.canary AND i.state IN ('waiting', 'redriven')) AS canaries_open
FROM {schema}.redrive_operations AS r CROSS JOIN (SELECT {schema}.clock() AS now) AS c
WHERE r.state = 'running' AND r.next_at <= c.now
ORDER BY r.next_at LIMIT 1 FOR UPDATE OF r SKIP LOCKED
