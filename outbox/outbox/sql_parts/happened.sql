-- Purpose: what has happened for a job so far, for the record of its cancellation: attempts, and the names of its checkpoints and of its effects by their state,
--   the first hundred of each.
-- Needs: j (the job's row). It is the inside of jsonb_build_object. Index: the primary keys of checkpoints and effects.
-- Parameters: none
'attempts', j.attempt_count,
      'checkpoints', coalesce((SELECT jsonb_agg(c.name ORDER BY c.name) FROM (
        SELECT k.name FROM {schema}.checkpoints AS k WHERE k.job_id = j.id ORDER BY k.name LIMIT 100) AS c), '[]'),
      'effects', coalesce((SELECT jsonb_object_agg(s.state, s.names) FROM (
        SELECT e.state, jsonb_agg(e.name ORDER BY e.name) AS names FROM (
          SELECT k.state, k.name, row_number() OVER (PARTITION BY k.state ORDER BY k.name) AS place
          FROM {schema}.effects AS k WHERE k.job_id = j.id AND k.state <> 'not_done') AS e WHERE e.place <= 100 GROUP BY e.state) AS s), '{}')
