-- Purpose: take the schedule whose turn it is, for this transaction, which waits for nobody's lock for longer than that: others have their turns, too.
-- Transition: none
-- Parameters: wait_ms (how long a statement of the turn may wait for a lock)
-- Locks: the schedule's row, SKIP LOCKED: one relay at a time advances it, and who changes it waits for the turn's end. The server ends the transaction after ten
--   seconds of silence.
-- Index: schedules_due.
SELECT s.name, s.kind, s.tenant, s.version, s.queue, s.payload::text AS payload_text, encode(s.payload_digest, 'hex') AS digest, s.rule, s.time_zone,
  s.priority, s.missed, s.missed_limit, s.grace_s, s.jitter_s, s.starts_at, s.ends_at, s.subject, s.supersedes, s.limit_group, s.limit_key, s.limit_max, s.limit_rule,
  coalesce(s.starts_at, s.created_at) AS anchor_at, s.after_at,
  s.failed_turns, s.xmin::text AS seen, c.now, set_config('lock_timeout', CAST(CAST(:wait_ms AS integer) AS text), true) AS bounded,
  -- Whoever is frozen in the middle keeps the schedule for no longer: what comes meanwhile is seen to within its grace, if that is as long as it usually is.
  set_config('idle_in_transaction_session_timeout', '10s', true) AS ended
FROM {schema}.schedules AS s CROSS JOIN (SELECT {schema}.clock() AS now) AS c
WHERE NOT s.paused AND s.disabled_at IS NULL AND s.wake_at <= c.now
ORDER BY s.wake_at, s.name LIMIT 1 FOR UPDATE OF s SKIP LOCKED
