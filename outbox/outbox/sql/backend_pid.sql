-- Purpose: tell which backend runs this session's statements. A pooler that lends sessions out has told its client another number.
--   And what plans are made by here, for whoever turns it off for a moment; and whether a statement's time is limited here.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
SELECT pg_backend_pid() AS pid, current_setting('enable_seqscan') AS seq_scans, current_setting('statement_timeout') AS time_limit
