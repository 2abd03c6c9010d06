-- Schedules whose jobs share a concurrency key or are about something. The terms are the same for each occurrence, and come from whoever declares it:
-- a relay knows no payload class. All NULL: their jobs have neither.

-- subject: what each job is about. supersedes: each ends the jobs of that subject that wait. limit_group to limit_max as on jobs; limit_rule: '' for any
-- order, s or b for the order of submission, where a failed one is skipped, or blocks.
ALTER TABLE {schema}.schedules
  ADD COLUMN subject text,
  ADD COLUMN supersedes boolean NOT NULL DEFAULT false,
  ADD COLUMN limit_group text,
  ADD COLUMN limit_key text,
  ADD COLUMN limit_max integer,
  ADD COLUMN limit_rule text,
  ADD CONSTRAINT schedules_subject CHECK (octet_length(subject) BETWEEN 1 AND 512 AND (subject IS NOT NULL OR NOT supersedes)),
  ADD CONSTRAINT schedules_limit CHECK (
    num_nulls(limit_group, limit_key, limit_max, limit_rule) IN (0, 4) AND octet_length(limit_key) BETWEEN 1 AND 512
    AND limit_max BETWEEN 1 AND 1000 AND limit_rule IN ('', 's', 'b') AND (limit_rule = '' OR limit_max = 1));

-- A relay of a release before this one makes the jobs of such a schedule without its terms. They get them here, in the transaction that makes
-- them, so that nobody has seen them without; in the order of their instants. Where this release's relay has made them nothing is left to do.
-- Nothing is superseded for an older relay.
CREATE FUNCTION {schema}.give_schedule_terms() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
  v_instant text := 'YYYY-MM-DD"T"HH24:MI:SS"Z"';
  v_from text := NEW.name || '@' || to_char(coalesce(OLD.after_at, NEW.created_at) AT TIME ZONE 'UTC', v_instant);
  v_to text := NEW.name || '@' || to_char(NEW.last_at AT TIME ZONE 'UTC', v_instant);
  v_job record;
  v_place bigint;
BEGIN
  FOR v_job IN
    SELECT j.id, j.kind FROM {schema}.jobs AS j
    WHERE j.tenant = NEW.tenant AND j.kind = NEW.kind AND j.logical_key > v_from AND j.logical_key <= v_to
      AND j.state = 'ready' AND j.attempt_count = 0
      AND j.limit_key IS NULL AND j.subject IS NULL
    ORDER BY j.logical_key
  LOOP
    PERFORM FROM {schema}.outbox AS o WHERE o.job_id = v_job.id AND o.phase = 'owed' FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_place := CASE WHEN NEW.limit_rule <> '' THEN {schema}.next_limit_place() END;
    UPDATE {schema}.outbox AS o SET subject = v_job.kind || ':' || NEW.subject, limit_group = NEW.limit_group, limit_key = NEW.limit_key,
      limit_max = NEW.limit_max, limit_place = v_place
    WHERE o.job_id = v_job.id;
    UPDATE {schema}.jobs AS j SET subject = NEW.subject, limit_group = NEW.limit_group, limit_key = NEW.limit_key, limit_max = NEW.limit_max,
      limit_place = v_place, limit_blocks = CASE WHEN NEW.limit_rule = 'b' THEN true END
    WHERE j.id = v_job.id;
  END LOOP;
  RETURN NULL;
END
$function$;
CREATE TRIGGER schedules_give_terms AFTER UPDATE OF made ON {schema}.schedules FOR EACH ROW
  WHEN (NEW.made > OLD.made AND (NEW.limit_key IS NOT NULL OR NEW.subject IS NOT NULL)) EXECUTE FUNCTION {schema}.give_schedule_terms();
