-- Purpose: whether an ended job waits for its turn in a redrive: that is not over, the job is as it was when it was chosen, and nobody has closed the letter
--   that it was found by. Where one of these is not so, the turn will only refuse it: nothing waits for that.
-- Needs: i (the item), r (its redrive), s (the job's id, attempt_count and finished_at). Subqueries, as in may_leave.sql. Index: dead_letters_pkey.
-- Parameters: none
i.state = 'waiting' AND r.ended_at IS NULL AND (i.attempt_count, i.finished_at) = (s.attempt_count, s.finished_at)
        AND (r.by_ids OR (SELECT d.discarded_at FROM {schema}.dead_letters AS d WHERE d.job_id = i.job_id LIMIT 1) IS NULL)
