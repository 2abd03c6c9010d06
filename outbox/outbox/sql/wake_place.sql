-- Purpose: tell under which names writers wake a relay of this installation, and whether they can.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: pg_type's own.
SELECT 'outbox_' || t.typrelid AS channel, CAST(1869771876 AS bigint) << 32 | CAST(t.typrelid AS bigint) AS key,
  pg_backend_pid() AS backend_pid, current_setting('max_prepared_transactions') <> '0' AS two_phase
FROM pg_type AS t WHERE t.oid = pg_typeof(CAST(NULL AS {schema}.outbox))
