-- Purpose: whether the caller can run the job of a row: its kind and version are among those that are named, or none are named at all.
-- Needs: o (job_id). Index: primary key of jobs; the limit's order keeps the planner to it.
-- Parameters: kinds and versions
(CAST(:kinds AS text[]) IS NULL OR coalesce((
      SELECT true FROM {schema}.jobs AS j, unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
      WHERE j.id = o.job_id AND a.kind = j.kind AND a.version = j.version ORDER BY j.id LIMIT 1), false))
