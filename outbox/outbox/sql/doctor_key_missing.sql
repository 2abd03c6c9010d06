-- Purpose: find keys that sealed jobs have waited for for long, and that no consumer of their queue seen lately has. A consumer that says nothing of its
--   keys (of an older release) may have any. What is paused is meant to wait.
-- Transition: none
-- Parameters: grace_s, live_s (how long ago a consumer's last sign may be), batch
-- Locks: none. Index: none for the outbox, attempts_pkey for each of the rows looked at. The processes are read whole.
WITH waits AS MATERIALIZED (
  SELECT o.job_id, o.queue, o.needs_key FROM {schema}.outbox AS o
  WHERE o.needs_key IS NOT NULL AND o.phase IN ('owed', 'released') AND NOT EXISTS (
      {pause_of_row})
  LIMIT 20000
), holders AS MATERIALIZED (
  SELECT q.queue, s.key_ids FROM {schema}.processes AS s, unnest(s.works_for) AS q(queue)
  WHERE s.role = 'consumer' AND s.seen_at > (SELECT {schema}.clock()) - make_interval(secs => CAST(:live_s AS float8))
)
SELECT w.needs_key AS subject, count(*) || ' jobs wait in queue ' || w.queue || ' for a consumer that has it' AS detail
FROM waits AS w
WHERE NOT EXISTS (SELECT 1 FROM holders AS h WHERE h.queue = w.queue AND (h.key_ids IS NULL OR w.needs_key = ANY (h.key_ids)))
  -- Whoever found that it lacks the key has handed the job back with that attempt.
  AND EXISTS (SELECT 1 FROM {schema}.attempts AS a WHERE a.job_id = w.job_id AND a.error_code = 'unknown_key'
    AND a.ended_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:grace_s AS float8)))
GROUP BY w.needs_key, w.queue ORDER BY count(*) DESC LIMIT CAST(:batch AS integer)
