-- Purpose: for how many seconds the oldest job had been due that stood in its queue's line when figures were counted; what was set aside for its concurrency
--   key is not. Figures of a release before tell of all alike. bounded_1 has the same.
-- Needs: f (the figures' row)
-- Parameters: none
greatest(least(f.oldest_due_s, CAST(extract(epoch FROM f.counted_at - f.line_due_since) AS float8)), 0)
