-- A redrive by a process of an older release writes an outbox row without the job's subject and concurrency key. It gets them here, in the same statement:
-- nobody has seen it without. Only a redrive writes budget_start, so that no other update of a job asks; where this release redrives, nothing is left to do.
CREATE FUNCTION {schema}.keep_redriven_terms() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
BEGIN
  UPDATE {schema}.outbox AS o SET subject = NEW.kind || ':' || NEW.subject, limit_group = NEW.limit_group, limit_key = NEW.limit_key,
    limit_max = NEW.limit_max, limit_place = NEW.limit_place
  WHERE o.job_id = NEW.id AND ((NEW.limit_key IS NOT NULL AND o.limit_key IS NULL) OR (NEW.subject IS NOT NULL AND o.subject IS NULL));
  RETURN NULL;
END
$function$;
CREATE TRIGGER jobs_keep_redriven_terms AFTER UPDATE OF budget_start ON {schema}.jobs FOR EACH ROW
  WHEN (NEW.state = 'ready' AND (NEW.limit_key IS NOT NULL OR NEW.subject IS NOT NULL)) EXECUTE FUNCTION {schema}.keep_redriven_terms();
