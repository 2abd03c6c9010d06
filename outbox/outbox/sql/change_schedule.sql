-- Purpose: give a schedule other terms, and have a relay look at it at once. With a new plan, nothing up to the moment from which that holds is an occurrence
--   of it; what had come by then of the old one has had its turn.
-- Transition: none
-- Parameters: name, kind, tenant, version, queue, payload (JSON text), digest (hexadecimal), rule, time_zone, priority, missed, missed_limit, grace_s,
--   jitter_s, starts_at, ends_at, subject, supersedes, limit_group, limit_key, limit_max, limit_rule, source, since (from when a new plan holds; NULL: the
--   plan stays)
-- Locks: the schedule's row, which the caller holds. Index: schedules_pkey.
UPDATE {schema}.schedules AS s
SET kind = CAST(:kind AS text), tenant = CAST(:tenant AS text), version = CAST(:version AS integer), queue = CAST(:queue AS text),
  payload = CAST(CAST(:payload AS text) AS jsonb), payload_digest = decode(CAST(:digest AS text), 'hex'), rule = CAST(:rule AS text),
  time_zone = CAST(:time_zone AS text), priority = CAST(:priority AS smallint), missed = CAST(:missed AS text),
  missed_limit = CAST(:missed_limit AS integer), grace_s = CAST(:grace_s AS integer), jitter_s = CAST(:jitter_s AS integer),
  starts_at = CAST(:starts_at AS timestamptz), ends_at = CAST(:ends_at AS timestamptz),
  subject = CAST(:subject AS text), supersedes = CAST(:supersedes AS boolean), limit_group = CAST(:limit_group AS text),
  limit_key = CAST(:limit_key AS text), limit_max = CAST(:limit_max AS integer), limit_rule = CAST(:limit_rule AS text), source = CAST(:source AS text),
  disabled_at = NULL, updated_at = c.now, revision = s.revision + 1, wake_at = '-infinity', failed_turns = 0,
  after_at = CASE WHEN CAST(:since AS timestamptz) IS NOT NULL THEN greatest(s.after_at, CAST(:since AS timestamptz)) ELSE s.after_at END,
  next_at = CASE WHEN CAST(:since AS timestamptz) IS NULL THEN s.next_at END
FROM (SELECT {schema}.clock() AS now) AS c
WHERE s.name = CAST(:name AS text)
RETURNING s.name
