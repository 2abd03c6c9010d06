-- Purpose: tell the database's time, for showing ages beside it.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
SELECT {schema}.clock() AS now
