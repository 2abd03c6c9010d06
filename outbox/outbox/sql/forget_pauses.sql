-- Purpose: delete pauses that are over, once nothing is set aside for them any more; one that somebody has begun anew stays.
-- Transition: none
-- Parameters: scopes, names, resumed_ats (as they were read before it was looked for)
-- Locks: the pauses' rows. Index: pauses_pkey.
DELETE FROM {schema}.pauses AS p
USING unnest(CAST(:scopes AS text[]), CAST(:names AS text[]), CAST(:resumed_ats AS timestamptz[])) AS o(scope, name, resumed_at)
WHERE p.scope = o.scope AND p.name = o.name AND p.resumed_at = o.resumed_at
