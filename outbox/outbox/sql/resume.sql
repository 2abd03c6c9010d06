-- Purpose: end a pause, and audit who and why. Its row stays until all that was set aside for it is back in line.
-- Transition: none
-- Parameters: scope, name ('' for everything), actor, reason
-- Locks: the pause's row, which waits for whoever sets jobs aside for it just now: so none is set aside for a pause that is over.
--   Index: pauses_pkey.
WITH ended AS (
  UPDATE {schema}.pauses AS p SET resumed_at = {schema}.clock()
  WHERE p.scope = CAST(:scope AS text) AND p.name = CAST(:name AS text) AND p.resumed_at IS NULL
  RETURNING p.scope, p.name, p.actor, p.reason, p.at, p.resumed_at
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT e.resumed_at, CAST(:actor AS text), 'work.resume', rtrim(e.scope || ' ' || e.name), CAST(:reason AS text), jsonb_build_object(
    'scope', e.scope, 'name', e.name, 'paused_by', e.actor, 'paused_for', e.reason, 'paused_at', e.at)
  FROM ended AS e
  RETURNING id
)
SELECT e.scope, e.name, e.actor, e.reason, e.at FROM ended AS e
