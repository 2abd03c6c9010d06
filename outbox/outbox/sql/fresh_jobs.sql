-- Purpose: find the newest jobs, and the latest open dead letters, that have come since an instant, and tell the time.
-- Transition: none
-- Parameters: after (an id: jobs beyond it), since (an instant: letters after it), batch (of each)
-- Locks: none. Index: jobs_pkey and dead_letters_open, each backwards and no further than the limit.
SELECT n.now,
  ARRAY(SELECT j.id FROM {schema}.jobs AS j WHERE j.id > CAST(:after AS uuid) ORDER BY j.id DESC LIMIT CAST(:batch AS integer)) AS jobs,
  ARRAY(SELECT d.job_id FROM {schema}.dead_letters AS d WHERE d.discarded_at IS NULL AND d.failed_at >= CAST(:since AS timestamptz)
    ORDER BY d.failed_at DESC, d.job_id DESC LIMIT CAST(:batch AS integer)) AS letters
FROM (SELECT {schema}.clock() AS now) AS n
