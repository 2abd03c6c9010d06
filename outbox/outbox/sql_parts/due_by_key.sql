-- Purpose: since when a row is due, or will be. What is set aside for its concurrency key stands so much later meanwhile, and is due, whatever its place says.
-- Needs: o (the outbox row)
-- Parameters: none
CASE WHEN o.last_error = 'waits for its key' AND o.order_key > {key_aside_from} THEN least(o.due_at - {key_aside_for}, {schema}.clock()) ELSE o.due_at END
