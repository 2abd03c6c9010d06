-- Purpose: have a redrive whose turn has failed wait, longer each time, so that others get theirs; after too many in a row, until a person resumes it.
--   Where its row has changed since, a turn of another relay went well: nothing changes. A pause is audited.
-- Transition: none
-- Parameters: operation_id, failed_turns (as the turn had found it), pause_s, next_state, stop_reason (NULL while it goes on)
-- Locks: the operation's row, SKIP LOCKED: who holds it sees to it. Index: redrive_operations_pkey.
WITH held AS MATERIALIZED (
  SELECT r.id FROM {schema}.redrive_operations AS r
  WHERE r.id = CAST(:operation_id AS uuid) AND r.state = 'running' AND r.failed_turns = CAST(:failed_turns AS integer) FOR UPDATE SKIP LOCKED
), postponed AS (
  UPDATE {schema}.redrive_operations AS r
  SET failed_turns = r.failed_turns + 1, next_at = c.now + make_interval(secs => CAST(:pause_s AS float8)), state = CAST(:next_state AS text),
    stop_reason = coalesce(CAST(:stop_reason AS text), r.stop_reason)
  FROM held AS h CROSS JOIN (SELECT {schema}.clock() AS now) AS c
  WHERE r.id = h.id
  RETURNING r.id, r.state, c.now
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason)
  SELECT p.now, 'outbox relay', 'redrive.pause', p.id::text, CAST(:stop_reason AS text) FROM postponed AS p WHERE p.state = 'paused'
  RETURNING id
)
SELECT p.state FROM postponed AS p
