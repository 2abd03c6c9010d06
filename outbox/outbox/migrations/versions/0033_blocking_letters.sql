-- Dead letters that hold up their concurrency key: those of jobs that say so. The other columns are NULL for all others.
ALTER TABLE {schema}.dead_letters
  ADD COLUMN limit_group text,
  ADD COLUMN limit_key text,
  ADD COLUMN limit_place bigint;

-- As it was, and the key of a job that blocks it.
CREATE OR REPLACE FUNCTION {schema}.keep_dead_letter() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM {schema}.dead_letters AS d WHERE d.job_id = OLD.id;
    RETURN NULL;
  END IF;
  INSERT INTO {schema}.dead_letters AS d (job_id, kind, queue, tenant, code, failed_at, limit_group, limit_key, limit_place)
  VALUES (NEW.id, NEW.kind, NEW.queue, NEW.tenant, coalesce(NEW.last_error_code, 'unknown'), NEW.finished_at,
    CASE WHEN NEW.limit_blocks THEN NEW.limit_group END, CASE WHEN NEW.limit_blocks THEN NEW.limit_key END,
    CASE WHEN NEW.limit_blocks THEN NEW.limit_place END)
  ON CONFLICT (job_id) DO UPDATE SET kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant, code = excluded.code,
    failed_at = excluded.failed_at, discarded_at = NULL, discarded_by = NULL, discard_reason = NULL,
    limit_group = excluded.limit_group, limit_key = excluded.limit_key, limit_place = excluded.limit_place
    WHERE d.failed_at IS DISTINCT FROM excluded.failed_at;
  RETURN NULL;
END
$function$;

-- Whoever closes such a letter, or takes its job away, lets the key go on. It waits for nobody; the insert of nothing wakes a relay that sleeps.
CREATE FUNCTION {schema}.leave_letter() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
  PERFORM {schema}.free_key(OLD.tenant, OLD.limit_group, OLD.limit_key);
  INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at) SELECT NULL, NULL, NULL, NULL, NULL WHERE false;
  RETURN NULL;
END
$function$;
CREATE TRIGGER dead_letters_discarded_key AFTER UPDATE OF discarded_at ON {schema}.dead_letters FOR EACH ROW
  WHEN (OLD.limit_key IS NOT NULL AND NEW.discarded_at IS NOT NULL) EXECUTE FUNCTION {schema}.leave_letter();
CREATE TRIGGER dead_letters_gone_key AFTER DELETE ON {schema}.dead_letters FOR EACH ROW
  WHEN (OLD.limit_key IS NOT NULL) EXECUTE FUNCTION {schema}.leave_letter();
