-- Purpose: tell which backend runs this session's statements. A pooler that lends sessions out has told its client another number.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
SELECT pg_backend_pid() AS pid
