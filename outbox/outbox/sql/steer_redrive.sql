-- Purpose: pause, resume or abort a redrive. Tells what it was before; where the move is not possible, nothing changes.
-- Transition: none
-- Parameters: operation_id, action (pause | resume | abort), actor, reason
-- Locks: the operation's row, waiting for the end of a turn that is under way. Index: redrive_operations_pkey.
WITH held AS MATERIALIZED (
  SELECT r.id, r.state FROM {schema}.redrive_operations AS r WHERE r.id = CAST(:operation_id AS uuid) FOR UPDATE
), steered AS (
  UPDATE {schema}.redrive_operations AS r
  SET next_at = c.now, idle_turns = 0, failed_turns = 0,
    state = CASE CAST(:action AS text) WHEN 'pause' THEN 'paused' WHEN 'resume' THEN 'running' ELSE 'aborted' END,
    ended_at = CASE WHEN CAST(:action AS text) = 'abort' THEN c.now END,
    stop_reason = CASE WHEN CAST(:action AS text) = 'resume' THEN NULL ELSE CAST(:reason AS text) END
  FROM held AS h CROSS JOIN (SELECT {schema}.clock() AS now) AS c
  WHERE r.id = h.id AND (h.state = 'running' AND CAST(:action AS text) IN ('pause', 'abort')
    OR h.state = 'paused' AND CAST(:action AS text) IN ('resume', 'abort'))
  RETURNING r.id, c.now
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason)
  SELECT s.now, CAST(:actor AS text), 'redrive.' || CAST(:action AS text), s.id::text, CAST(:reason AS text) FROM steered AS s
  RETURNING id
)
SELECT h.state AS before, EXISTS (SELECT 1 FROM steered) AS steered FROM held AS h
