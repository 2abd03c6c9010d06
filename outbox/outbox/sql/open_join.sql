-- Purpose: note for which jobs a new one waits, in the transaction that has just written it as held.
-- Transition: none
-- Parameters: job_id (the one that waits), condition (succeeded | ended), run_at (its earliest start, or NULL), members (JSON text: an array of ids)
-- Locks: none that anybody waits for. Index: joins_pkey, join_members_pkey.
WITH members AS MATERIALIZED (
  SELECT DISTINCT CAST(a.value AS uuid) AS job_id FROM jsonb_array_elements_text(CAST(CAST(:members AS text) AS jsonb)) AS a(value)
), listed AS (
  INSERT INTO {schema}.join_members (join_id, job_id) SELECT CAST(:job_id AS uuid), m.job_id FROM members AS m
)
INSERT INTO {schema}.joins (job_id, condition, run_at, members, created_at)
SELECT CAST(:job_id AS uuid), CAST(:condition AS text), CAST(:run_at AS timestamptz), (SELECT count(*) FROM members AS m), {schema}.clock()
