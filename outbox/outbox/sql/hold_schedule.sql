-- Purpose: lock one schedule for this transaction, with its payload, and tell the time once it is locked: up to then its plan holds.
-- Transition: none
-- Parameters: name
-- Locks: the schedule's row, waiting for the end of a turn that is under way; by who locks several in the order of their names.
-- Index: schedules_pkey.
WITH held AS MATERIALIZED (
  SELECT s.name, s.kind, s.tenant, s.version, s.queue, s.payload::text AS payload_text, encode(s.payload_digest, 'hex') AS digest, s.rule, s.time_zone,
    s.priority, s.missed, s.missed_limit, s.grace_s, s.jitter_s, s.starts_at, s.ends_at, s.subject, s.supersedes, s.limit_group, s.limit_key, s.limit_max, s.limit_rule,
    s.source, s.paused, s.disabled_at, coalesce(s.starts_at, s.created_at) AS anchor_at, s.after_at, s.next_at, s.created_at
  FROM {schema}.schedules AS s WHERE s.name = CAST(:name AS text) FOR UPDATE
)
SELECT h.*, {schema}.clock() AS now, current_setting('transaction_isolation') AS isolation FROM held AS h
