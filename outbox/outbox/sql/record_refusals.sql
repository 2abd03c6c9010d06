-- Purpose: keep with jobs that writes of theirs came too late: which attempt wanted what. No more than so many for a job.
-- Transition: none
-- Parameters: job_ids, attempts, whats, worker, limit_per_job
-- Locks: none that anybody waits for. Index: jobs' primary key, refusals_job.
INSERT INTO {schema}.refusals (job_id, attempt, at, what, worker)
SELECT r.job_id, r.attempt, {schema}.clock(), r.what, CAST(:worker AS text)
FROM unnest(CAST(:job_ids AS uuid[]), CAST(:attempts AS integer[]), CAST(:whats AS text[])) AS r(job_id, attempt, what)
WHERE (SELECT true FROM {schema}.jobs AS j WHERE j.id = r.job_id)
  AND (SELECT count(*) FROM {schema}.refusals AS k WHERE k.job_id = r.job_id) < CAST(:limit_per_job AS integer)
