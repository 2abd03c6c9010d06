-- Dead letters: what failed and waits for a person. `jobs` has no index on what changes, so these few rows are kept beside it.

-- One row for each failed job. It stays when a person discards the letter, so that who and why stay with it; it goes with a redrive.
CREATE TABLE {schema}.dead_letters (
  job_id         uuid PRIMARY KEY,
  kind           text NOT NULL,
  queue          text NOT NULL,
  tenant         text NOT NULL,
  code           text NOT NULL,
  failed_at      timestamptz NOT NULL,
  discarded_at   timestamptz,
  discarded_by   text,
  discard_reason text,
  CONSTRAINT dead_letters_discarded CHECK (num_nulls(discarded_at, discarded_by, discard_reason) IN (0, 3))
);
-- The open ones: newest first in every filter, and counted by cause from the index alone.
CREATE INDEX dead_letters_open ON {schema}.dead_letters (failed_at, job_id) WHERE discarded_at IS NULL;
CREATE INDEX dead_letters_cause ON {schema}.dead_letters (code, kind, failed_at, job_id) WHERE discarded_at IS NULL;
CREATE INDEX dead_letters_kind ON {schema}.dead_letters (kind, failed_at, job_id) WHERE discarded_at IS NULL;
CREATE INDEX dead_letters_queue ON {schema}.dead_letters (queue, failed_at, job_id) WHERE discarded_at IS NULL;
CREATE INDEX dead_letters_tenant ON {schema}.dead_letters (tenant, failed_at, job_id) WHERE discarded_at IS NULL;
CREATE INDEX dead_letters_discarded ON {schema}.dead_letters (failed_at, job_id) WHERE discarded_at IS NOT NULL;

-- Whoever fails a job, with whatever release and rights, leaves its letter: so this belongs to the tables, and runs with their owner's rights.
CREATE FUNCTION {schema}.keep_dead_letter() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM {schema}.dead_letters AS d WHERE d.job_id = OLD.id;
    RETURN NULL;
  END IF;
  INSERT INTO {schema}.dead_letters AS d (job_id, kind, queue, tenant, code, failed_at)
  VALUES (NEW.id, NEW.kind, NEW.queue, NEW.tenant, coalesce(NEW.last_error_code, 'unknown'), NEW.finished_at)
  ON CONFLICT (job_id) DO UPDATE SET kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant, code = excluded.code,
    failed_at = excluded.failed_at, discarded_at = NULL, discarded_by = NULL, discard_reason = NULL
    WHERE d.failed_at IS DISTINCT FROM excluded.failed_at;
  RETURN NULL;
END
$function$;
-- Asked only about statements that end jobs, and called only for those that have failed: a success costs the question.
CREATE TRIGGER jobs_keep_dead_letter AFTER UPDATE OF finished_at ON {schema}.jobs
  FOR EACH ROW WHEN (NEW.state = 'failed') EXECUTE FUNCTION {schema}.keep_dead_letter();
CREATE TRIGGER jobs_drop_dead_letter AFTER DELETE ON {schema}.jobs
  FOR EACH ROW WHEN (OLD.state = 'failed') EXECUTE FUNCTION {schema}.keep_dead_letter();

-- Jobs that had failed before get their letters from the relays, little by little: to read all jobs in here would keep workers waiting.
-- Everything up to `place` has been seen to; no row once all has.
CREATE TABLE {schema}.dead_letter_backlog (
  only_row boolean PRIMARY KEY DEFAULT true,
  place    uuid NOT NULL,
  CONSTRAINT dead_letter_backlog_one CHECK (only_row)
);
INSERT INTO {schema}.dead_letter_backlog (place) SELECT '00000000-0000-0000-0000-000000000000' WHERE EXISTS (SELECT FROM {schema}.jobs);
