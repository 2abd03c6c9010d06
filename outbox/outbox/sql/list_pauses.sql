-- Purpose: read all pauses, those too that are over while what was set aside for them is being put back.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: the table holds a row per pause and is read whole.
SELECT p.scope, p.name, p.actor, p.reason, p.at, p.resumed_at FROM {schema}.pauses AS p ORDER BY p.at, p.scope, p.name
