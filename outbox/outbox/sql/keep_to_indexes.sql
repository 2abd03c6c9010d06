-- Purpose: have this transaction's statements planned by indexes and not compiled, as the sessions of relays and consumers have it: a read for a person
--   is short, and statistics may be old.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none.
SELECT pg_catalog.set_config('enable_seqscan', 'off', true) AS scans, pg_catalog.set_config('jit', 'off', true) AS jit
