-- Purpose: delete a schedule. The jobs that it has made stay.
-- Transition: none
-- Parameters: name
-- Locks: the schedule's row, which the caller holds. Index: schedules_pkey.
DELETE FROM {schema}.schedules AS s WHERE s.name = CAST(:name AS text) RETURNING s.name
