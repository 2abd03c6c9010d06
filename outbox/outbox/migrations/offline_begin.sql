BEGIN;
SET LOCAL client_encoding = 'UTF8';
SET LOCAL lock_timeout = '2s';
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;
-- One migrator of this schema at a time.
DO $lock$ BEGIN PERFORM pg_advisory_xact_lock({lock_key}); END $lock$;
