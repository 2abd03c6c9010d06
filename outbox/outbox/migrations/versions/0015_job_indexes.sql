-- How the jobs of a workflow are found. Both columns are written with the row and never change, so that updates stay heap-only; a job without them
-- is in neither index. Alone in their revision, the last one: to build them all jobs are read, and nothing else may be held meanwhile.
CREATE INDEX IF NOT EXISTS jobs_parent ON {schema}.jobs (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_correlation ON {schema}.jobs (correlation_id, id) WHERE correlation_id IS NOT NULL;
