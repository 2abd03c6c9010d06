-- Purpose: why a job can't be put back to work, the first reason of those that hold; NULL: it can be. The same for a look and for the deed.
-- Needs: j (the job's row, all NULL where it is gone); q (what is asked: by_ids, include_uncertain, deadline_at, and attempt_count and finished_at as they
--   were when the job was chosen); c (now); s (has_open_effects, waits_elsewhere: in another redrive that comes first). Index: primary keys of outbox and joins.
-- Parameters: none
CASE
      WHEN j.id IS NULL THEN 'gone'
      WHEN j.state = 'succeeded' THEN 'succeeded'
      WHEN j.state NOT IN ('failed', 'cancelled') AND q.finished_at IS NULL THEN 'not_ended'
      WHEN j.state NOT IN ('failed', 'cancelled') OR (j.attempt_count, j.finished_at) IS DISTINCT FROM (q.attempt_count, q.finished_at) THEN 'changed'
      WHEN j.payload_erased_at IS NOT NULL THEN 'payload_erased'
      -- A defect, which would break the whole statement.
      WHEN EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.job_id = j.id) THEN 'outbox_row'
      WHEN coalesce(q.deadline_at, j.deadline_at) <= c.now THEN 'expired'
      WHEN j.last_error_code = 'effect_on_hold' AND NOT q.include_uncertain AND s.has_open_effects THEN 'effect_on_hold'
      -- Of two that have chosen it, the first one puts it back.
      WHEN NOT q.by_ids AND s.waits_elsewhere THEN 'in_redrive'
      WHEN NOT q.by_ids AND j.attempt_count = 0
        AND EXISTS (SELECT 1 FROM {schema}.joins AS k WHERE k.job_id = j.id AND k.outcome IS DISTINCT FROM 'started') THEN 'set_unmet'
    END
