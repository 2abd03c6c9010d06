-- Recurring schedules. The table stands since the first release and was never written; a row of only its columns of then is a schedule, too.

-- after_at: every occurrence up to there has been seen to; NULL: the first turn begins with its own moment.
-- wake_at: when a relay looks at the row next: at once for what is new or changed, later for what is broken, never for what is over.
-- missed: what becomes of occurrences that are more than grace_s late. source: who declares it; what a person has added is the operator's.
ALTER TABLE {schema}.schedules
  ADD COLUMN payload_digest bytea,
  ADD COLUMN priority smallint NOT NULL DEFAULT 0,
  ADD COLUMN missed text NOT NULL DEFAULT 'latest',
  ADD COLUMN missed_limit integer NOT NULL DEFAULT 100,
  ADD COLUMN grace_s integer NOT NULL DEFAULT 60,
  ADD COLUMN jitter_s integer NOT NULL DEFAULT 0,
  ADD COLUMN starts_at timestamptz,
  ADD COLUMN ends_at timestamptz,
  ADD COLUMN source text NOT NULL DEFAULT 'operator',
  ADD COLUMN disabled_at timestamptz,
  ADD COLUMN after_at timestamptz,
  ADD COLUMN wake_at timestamptz NOT NULL DEFAULT '-infinity',
  ADD COLUMN broken_at timestamptz,
  ADD COLUMN failed_turns integer NOT NULL DEFAULT 0,
  ADD COLUMN made bigint NOT NULL DEFAULT 0,
  ADD COLUMN passed_over bigint NOT NULL DEFAULT 0,
  ADD COLUMN revision integer NOT NULL DEFAULT 1,
  ADD CONSTRAINT schedules_payload CHECK (jsonb_typeof(payload) = 'object'),
  ADD CONSTRAINT schedules_priority CHECK (priority BETWEEN -100 AND 100),
  ADD CONSTRAINT schedules_missed CHECK (missed IN ('skip', 'latest', 'all') AND missed_limit BETWEEN 1 AND 10000),
  ADD CONSTRAINT schedules_spans CHECK (grace_s BETWEEN 0 AND 86400 AND jitter_s BETWEEN 0 AND 86400),
  ADD CONSTRAINT schedules_broken CHECK (broken_at IS NULL OR last_error IS NOT NULL),
  -- What every driver can read back.
  ADD CONSTRAINT schedules_instants CHECK (
    created_at BETWEEN '1970-01-01Z' AND '9999-01-01Z' AND updated_at BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND coalesce(starts_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z' AND coalesce(ends_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND coalesce(next_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z' AND coalesce(last_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND coalesce(after_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND coalesce(disabled_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z'
    AND coalesce(broken_at, created_at) BETWEEN '1970-01-01Z' AND '9999-01-01Z');

-- What a relay may have to look at; the rest is asleep until a person wakes it.
CREATE INDEX schedules_due ON {schema}.schedules (wake_at, name) WHERE NOT paused AND disabled_at IS NULL;
