-- Purpose: read what has happened for a job so far, as it is committed, for a cancel whose own snapshot may be too old. cancel.sql does the same.
-- Transition: none
-- Parameters: job_id
-- Locks: none; the caller holds the outbox row. Index: the primary keys of jobs, checkpoints and effects.
SELECT CAST(jsonb_build_object(
  'attempts', j.attempt_count,
  'checkpoints', coalesce((SELECT jsonb_agg(c.name ORDER BY c.name) FROM (
    SELECT k.name FROM {schema}.checkpoints AS k WHERE k.job_id = j.id ORDER BY k.name LIMIT 100) AS c), '[]'),
  'effects', coalesce((SELECT jsonb_object_agg(s.state, s.names) FROM (
    SELECT e.state, jsonb_agg(e.name ORDER BY e.name) AS names FROM (
      SELECT k.state, k.name, row_number() OVER (PARTITION BY k.state ORDER BY k.name) AS place
      FROM {schema}.effects AS k WHERE k.job_id = j.id AND k.state <> 'not_done') AS e WHERE e.place <= 100 GROUP BY e.state) AS s), '{}')) AS text) AS traces
FROM {schema}.jobs AS j WHERE j.id = CAST(:job_id AS uuid)
