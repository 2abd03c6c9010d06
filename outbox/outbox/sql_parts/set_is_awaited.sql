-- Purpose: whether the job of a set still waits for it. One without an outbox row that has not ended waits, too: the row was lost, and the doctor writes it
--   anew, as held as the job says; were its set closed meanwhile, nothing would ever make it due.
-- Needs: i (the set: job_id). Index: primary keys of outbox and, where there is no row, jobs.
-- Parameters: held_at (when held jobs are due)
coalesce((SELECT o.due_at >= CAST(:held_at AS timestamptz) FROM {schema}.outbox AS o WHERE o.job_id = i.job_id LIMIT 1),
      (SELECT j.state = 'ready' FROM {schema}.jobs AS j WHERE j.id = i.job_id LIMIT 1), false)
