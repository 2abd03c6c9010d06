-- Purpose: keep what a worker learnt too late: the effect that it had begun has happened, but its lease is lost. Evidence for a person, not a
--   confirmation: the effect's own row is left to whoever owns the job now.
-- Transition: none
-- Parameters: job_id, name, attempt, actor, reason, detail (JSON text)
-- Locks: none. Index: effects_pkey.
INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
SELECT {schema}.clock(), CAST(:actor AS text), 'effect.late', e.job_id::text, CAST(:reason AS text),
  CAST(CAST(:detail AS text) AS jsonb) || jsonb_build_object('effect', e.name, 'attempt', CAST(:attempt AS integer), 'then', e.state)
FROM {schema}.effects AS e WHERE e.job_id = CAST(:job_id AS uuid) AND e.name = CAST(:name AS text)
RETURNING id
