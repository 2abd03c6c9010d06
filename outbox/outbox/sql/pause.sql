-- Purpose: pause a queue, a kind, a tenant or everything, and audit who and why; one that is paused already stays as it is. Of a pause that is
--   just being resumed, what is still set aside stays so under the new one.
-- Transition: none
-- Parameters: scope, name ('' for everything), actor, reason
-- Locks: the pause's row. Index: pauses_pkey. No row: somebody else has paused it in this moment; read it again.
WITH put AS (
  INSERT INTO {schema}.pauses AS p (scope, name, actor, reason, at)
  SELECT CAST(:scope AS text), CAST(:name AS text), CAST(:actor AS text), CAST(:reason AS text), {schema}.clock()
  ON CONFLICT (scope, name) DO UPDATE SET actor = excluded.actor, reason = excluded.reason, at = excluded.at, resumed_at = NULL
    WHERE p.resumed_at IS NOT NULL
  RETURNING p.scope, p.name, p.actor, p.reason, p.at
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT u.at, u.actor, 'work.pause', rtrim(u.scope || ' ' || u.name), u.reason, jsonb_build_object('scope', u.scope, 'name', u.name)
  FROM put AS u
  RETURNING id
)
SELECT u.scope, u.name, u.actor, u.reason, u.at, true AS begun, current_setting('transaction_isolation') AS isolation FROM put AS u
UNION ALL
SELECT p.scope, p.name, p.actor, p.reason, p.at, false, current_setting('transaction_isolation')
FROM {schema}.pauses AS p
WHERE p.scope = CAST(:scope AS text) AND p.name = CAST(:name AS text) AND p.resumed_at IS NULL AND NOT EXISTS (SELECT 1 FROM put)
