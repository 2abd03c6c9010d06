-- Purpose: since when a job has been due to be started: since its time, or since an attempt gave it up (its lease was lost, say), whichever came last.
-- Needs: j (a row of jobs)
-- Parameters: none
greatest(j.run_at, (
    SELECT a.ended_at FROM {schema}.attempts AS a
    WHERE j.attempt_count > CASE j.state WHEN 'running' THEN 1 ELSE 0 END AND a.job_id = j.id AND a.number = j.attempt_count - CASE j.state WHEN 'running' THEN 1 ELSE 0 END AND isfinite(a.ended_at)))
