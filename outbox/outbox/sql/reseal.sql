-- Purpose: put new envelopes in the place of old ones, where they still are what was read; and offer again what waited for an old key. Jobs whose
--   rows somebody holds are left alone: they are tried again later.
-- Transition: none
-- Parameters: job_ids, olds, news (one of each for a job, JSON texts)
-- Locks: outbox rows in id order, then job rows in id order, both SKIP LOCKED, so that nobody is waited for. Index: both primary keys. No index
--   holds a payload, so the update is heap-only.
WITH wanted AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:olds AS text[]), CAST(:news AS text[])) AS w(job_id, old, new)
), owed AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) ORDER BY o.job_id FOR NO KEY UPDATE SKIP LOCKED
), held AS MATERIALIZED (
  SELECT j.id FROM {schema}.jobs AS j
  WHERE j.id = ANY (CAST(:job_ids AS uuid[])) AND j.id <> ALL (ARRAY(
    SELECT o.job_id FROM {schema}.outbox AS o WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND o.job_id NOT IN (SELECT d.job_id FROM owed AS d)))
  ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED
), resealed AS (
  UPDATE {schema}.jobs AS j SET payload = w.new::jsonb
  FROM wanted AS w
  WHERE j.id = w.job_id AND j.id = ANY (ARRAY(SELECT h.id FROM held AS h)) AND j.payload = w.old::jsonb
  RETURNING j.id
), offered AS (
  UPDATE {schema}.outbox AS o
  -- What stands aside, for its concurrency key or a pause, waits for that, and has its place there by what its row says.
  SET needs_key = NULL, last_error = nullif(o.last_error, 'unknown key'),
    due_at = CASE WHEN o.phase = 'owed' AND o.last_error = 'unknown key' THEN least(o.due_at, n.now) ELSE o.due_at END
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE o.job_id = ANY (ARRAY(SELECT r.id FROM resealed AS r)) AND o.needs_key IS NOT NULL
)
SELECT w.job_id, CASE WHEN r.id IS NOT NULL THEN 'rotated' WHEN j.id IS NOT NULL THEN 'busy' ELSE 'gone' END AS outcome
FROM wanted AS w
LEFT JOIN resealed AS r ON r.id = w.job_id
LEFT JOIN {schema}.jobs AS j ON j.id = w.job_id AND j.id = ANY (CAST(:job_ids AS uuid[])) AND j.payload = w.old::jsonb
