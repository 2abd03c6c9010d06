-- Purpose: close a turn of a redrive: its counts, when its next turn is, and whether it has come to an end. A stop is audited.
-- Transition: none
-- Parameters: operation_id, redriven, refused, succeeded, failed, otherwise, canaries_done, idle_turns, pause_s, next_state, stop_reason
-- Locks: the operation's row, which the caller holds. Index: redrive_operations_pkey.
WITH advanced AS (
  UPDATE {schema}.redrive_operations AS r
  SET redriven = r.redriven + CAST(:redriven AS integer), refused = r.refused + CAST(:refused AS integer),
    succeeded = r.succeeded + CAST(:succeeded AS integer), failed = r.failed + CAST(:failed AS integer),
    otherwise = r.otherwise + CAST(:otherwise AS integer), canaries_done = r.canaries_done + CAST(:canaries_done AS integer),
    idle_turns = CAST(:idle_turns AS integer), failed_turns = 0,
    next_at = c.now + make_interval(secs => CAST(:pause_s AS float8)), state = CAST(:next_state AS text),
    stop_reason = coalesce(CAST(:stop_reason AS text), r.stop_reason),
    ended_at = CASE WHEN CAST(:next_state AS text) IN ('stopped', 'done') THEN c.now END
  FROM (SELECT {schema}.clock() AS now) AS c
  WHERE r.id = CAST(:operation_id AS uuid)
  RETURNING r.id, r.state, c.now
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason)
  SELECT a.now, 'outbox relay', 'redrive.stop', a.id::text, CAST(:stop_reason AS text) FROM advanced AS a WHERE a.state = 'stopped'
  RETURNING id
)
SELECT a.id FROM advanced AS a
