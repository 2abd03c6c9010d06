-- Purpose: say why named jobs were not claimed, and owe again those that are free but not for this consumer (kind, version or key unknown here). Of one that
--   was superseded also which job of its subject is released now: its hint stands for that one, too, whose own may be far behind at the broker.
-- Transition: none (phase released -> owed for the foreign ones)
-- Parameters: job_ids, kinds, versions (what the caller can run), key_ids (what he can open), pause_s, pause_max_s (doubling with each release)
-- Locks: outbox rows in id order, SKIP LOCKED. Index: both primary keys; outbox_subject, and coalesce keeps the planner from outbox_released.
WITH able AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
), held AS MATERIALIZED (
  SELECT o.job_id, o.phase, o.needs_key IS NOT NULL AND (o.needs_key = ANY (CAST(:key_ids AS text[]))) IS NOT TRUE AS keyless
  FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[]))
  ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), free AS MATERIALIZED (
  SELECT j.id, j.run_at, n.now, CASE
      WHEN NOT EXISTS (SELECT 1 FROM able AS a WHERE a.kind = j.kind AND a.version = j.version) THEN 'unsupported'
      WHEN j.id IN (SELECT h.job_id FROM held AS h WHERE h.keyless) THEN 'unknown_key'
      WHEN j.run_at > n.now THEN 'not_due'
    END AS reason
  FROM {schema}.jobs AS j, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h WHERE h.phase = 'released')) AND j.state = 'ready'
), given_back AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', released_by = NULL,
    last_error = CASE f.reason WHEN 'not_due' THEN 'not due' WHEN 'unknown_key' THEN 'unknown key' ELSE 'no handler here for its kind and version' END,
    due_at = greatest(f.run_at, f.now + make_interval(secs => CASE WHEN f.reason = 'not_due' THEN 0 ELSE
      least(CAST(:pause_s AS float8) * power(2, least(o.release_count - 1, 20)), CAST(:pause_max_s AS float8)) END)),
    -- To the end of the line: what nobody here can run must not stand in front of what somebody can.
    order_key = greatest(o.order_key, f.now)
  FROM free AS f
  WHERE o.job_id = f.id AND o.job_id = ANY (ARRAY(SELECT e.id FROM free AS e)) AND f.reason IS NOT NULL
  RETURNING o.job_id, f.reason
)
SELECT i.job_id, CASE
    WHEN g.reason IS NOT NULL THEN g.reason
    WHEN h.phase IS NULL AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = i.job_id) THEN 'unknown'
    ELSE 'stale'
  END AS reason,
  CASE WHEN h.phase IS NULL THEN (
    SELECT o.job_id FROM {schema}.jobs AS j
    JOIN {schema}.outbox AS o ON o.queue = j.queue AND o.tenant = j.tenant AND o.subject = j.kind || ':' || j.subject AND o.subject IS NOT NULL AND coalesce(o.phase = 'released', false)
    WHERE j.id = i.job_id AND j.state = 'cancelled' AND j.cancelled_after ->> 'superseded_by' IS NOT NULL
    LIMIT 1) END AS newer
FROM unnest(CAST(:job_ids AS uuid[])) AS i(job_id)
LEFT JOIN held AS h ON h.job_id = i.job_id
LEFT JOIN given_back AS g ON g.job_id = i.job_id
