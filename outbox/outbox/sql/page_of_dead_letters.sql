-- Purpose: tell where a page of the walk through dead_letters ends, from the newest id backwards; no row where the rest fits on it.
-- Transition: none
-- Parameters: below (where it begins, or NULL), page (rows)
-- Locks: none. Index: primary key, backwards.
SELECT t.job_id AS low FROM {schema}.dead_letters AS t WHERE t.job_id < coalesce(CAST(:below AS uuid), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY t.job_id DESC OFFSET CAST(:page AS integer) - 1 LIMIT 1
