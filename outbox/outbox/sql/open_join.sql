-- Purpose: note for which jobs a new one waits, in the transaction that has just written it as held. Members that had met the condition when they
--   were looked at count from then on: a purge may delete them before this commits.
-- Transition: none
-- Parameters: job_id (the one that waits), condition (succeeded | ended), run_at (its earliest start, or NULL), members (JSON text: an object, of
--   each id the state in which it has met the condition, or null)
-- Locks: none that anybody waits for. Index: joins_pkey, join_members_pkey.
WITH members AS MATERIALIZED (
  SELECT CAST(a.key AS uuid) AS job_id, a.value AS seen FROM jsonb_each_text(CAST(CAST(:members AS text) AS jsonb)) AS a(key, value)
), listed AS (
  INSERT INTO {schema}.join_members (join_id, job_id, seen) SELECT CAST(:job_id AS uuid), m.job_id, m.seen FROM members AS m
)
INSERT INTO {schema}.joins (job_id, condition, run_at, members, created_at)
SELECT CAST(:job_id AS uuid), CAST(:condition AS text), CAST(:run_at AS timestamptz), (SELECT count(*) FROM members AS m), {schema}.clock()
