-- Purpose: remember how far the walk through old jobs has come. Runs in the transaction of hold_walk.sql and of the stretch itself.
-- Transition: none
-- Parameters: place (NULL: the end; the next walk begins at the beginning)
-- Locks: the walk's row, held already. Index: walks_pkey.
UPDATE {schema}.walks AS w
SET place = coalesce(CAST(:place AS uuid), '00000000-0000-0000-0000-000000000000'),
  ended_at = CASE WHEN CAST(:place AS uuid) IS NULL THEN {schema}.clock() END
WHERE w.name = 'retention'
