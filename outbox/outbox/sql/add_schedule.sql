-- Purpose: add a schedule, unless there is one of its name. Nothing up to this moment is an occurrence of it.
-- Transition: none
-- Parameters: name, kind, tenant, version, queue, payload (JSON text), digest (hexadecimal), rule, time_zone, priority, missed, missed_limit, grace_s,
--   jitter_s, starts_at, ends_at, subject, supersedes, limit_group, limit_key, limit_max, limit_rule, source
-- Locks: waits only for a transaction that has added the same name and not yet ended. Index: schedules_pkey.
INSERT INTO {schema}.schedules (name, kind, tenant, version, queue, payload, payload_digest, rule, time_zone, priority, missed, missed_limit, grace_s,
  jitter_s, starts_at, ends_at, subject, supersedes, limit_group, limit_key, limit_max, limit_rule, source, after_at, created_at, updated_at)
SELECT CAST(:name AS text), CAST(:kind AS text), CAST(:tenant AS text), CAST(:version AS integer), CAST(:queue AS text),
  CAST(CAST(:payload AS text) AS jsonb), decode(CAST(:digest AS text), 'hex'), CAST(:rule AS text), CAST(:time_zone AS text),
  CAST(:priority AS smallint), CAST(:missed AS text), CAST(:missed_limit AS integer), CAST(:grace_s AS integer), CAST(:jitter_s AS integer),
  CAST(:starts_at AS timestamptz), CAST(:ends_at AS timestamptz), CAST(:subject AS text), CAST(:supersedes AS boolean),
  CAST(:limit_group AS text), CAST(:limit_key AS text), CAST(:limit_max AS integer), CAST(:limit_rule AS text), CAST(:source AS text), c.now, c.now, c.now
FROM (SELECT {schema}.clock() AS now) AS c
ON CONFLICT (name) DO NOTHING
RETURNING name, created_at
