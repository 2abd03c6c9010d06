-- Purpose: bound every later statement of this transaction, and only of this one.
-- Transition: none
-- Parameters: milliseconds (as text)
-- Locks: none. Index: none.
SELECT set_config('statement_timeout', CAST(:milliseconds AS text), true)
