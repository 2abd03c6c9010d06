-- Purpose: tell whether jobs that had failed before there were letters may still lack theirs.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none; the table has one row or none.
SELECT EXISTS (SELECT FROM {schema}.dead_letter_backlog) AS unfinished
