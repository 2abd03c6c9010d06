-- Purpose: read what of one job may be sealed, each with the place that it was sealed for: of its newest attempts, and of so many checkpoints and effects by
--   name; tell whether there are others; and audit who looks and why.
-- Transition: none
-- Parameters: job_id, actor, reason, batch (attempts, checkpoints, effects at most)
-- Locks: none. Index: primary keys of jobs, attempts, checkpoints and effects.
WITH job AS MATERIALIZED (
  SELECT * FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason)
  SELECT {schema}.clock(), CAST(:actor AS text), 'job.open', j.id::text, CAST(:reason AS text) FROM job AS j
), tries AS MATERIALIZED (
  SELECT a.number, a.error_message, a.traceback FROM {schema}.attempts AS a WHERE a.job_id = CAST(:job_id AS uuid)
  ORDER BY a.job_id DESC, a.number DESC LIMIT CAST(:batch AS integer) + 1
), kept AS MATERIALIZED (
  SELECT c.name, c.value FROM {schema}.checkpoints AS c WHERE c.job_id = CAST(:job_id AS uuid) ORDER BY c.job_id, c.name LIMIT CAST(:batch AS integer) + 1
), done AS MATERIALIZED (
  SELECT e.name, e.result, e.error_message FROM {schema}.effects AS e WHERE e.job_id = CAST(:job_id AS uuid) ORDER BY e.job_id, e.name LIMIT CAST(:batch AS integer) + 1
), newest AS MATERIALIZED (
  SELECT * FROM tries AS a ORDER BY a.number DESC LIMIT CAST(:batch AS integer)
)
SELECT j.id, j.tenant, j.kind, j.version, p.place, p.name, p.text,
  (SELECT greatest((SELECT count(*) FROM tries AS a), (SELECT count(*) FROM kept AS c), (SELECT count(*) FROM done AS e)) > CAST(:batch AS integer)) AS is_cut
FROM job AS j, LATERAL (
  SELECT 0 AS part, 0 AS number, 'payload' AS place, 'payload' AS name, j.payload::text AS text
  UNION ALL SELECT 1, 0, 'error', 'first error', j.first_error_message
  UNION ALL SELECT 1, 1, 'error', 'last error', j.last_error_message
  UNION ALL SELECT 2, a.number, 'error', 'error of attempt ' || a.number, a.error_message FROM newest AS a
  UNION ALL SELECT 3, a.number, 'traceback', 'traceback of attempt ' || a.number, a.traceback FROM newest AS a
  UNION ALL SELECT 4, 0, 'checkpoint:' || c.name, 'checkpoint ' || c.name, c.value::text FROM (SELECT * FROM kept LIMIT CAST(:batch AS integer)) AS c
  UNION ALL SELECT 5, 0, 'effect:' || e.name, 'result of effect ' || e.name, e.result::text FROM (SELECT * FROM done LIMIT CAST(:batch AS integer)) AS e
  UNION ALL SELECT 6, 0, 'effect_error:' || e.name, 'error of effect ' || e.name, e.error_message FROM (SELECT * FROM done LIMIT CAST(:batch AS integer)) AS e
) AS p
WHERE p.text IS NOT NULL
ORDER BY p.part, p.number, p.name
