-- Purpose: whether the hint of an owed row may go next: due, for as long as it is asked for, held by no pause, and of what the caller can run.
-- Needs: o (the outbox row); paused and now (from `pauses_here`)
-- Parameters: overdue_s, kinds and versions
o.due_at <= (SELECT n.instant FROM now AS n) - make_interval(secs => CAST(:overdue_s AS float8))
    AND ((SELECT n.clear FROM now AS n) OR ({unpaused}))
    AND {runnable}
