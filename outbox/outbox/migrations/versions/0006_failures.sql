-- Budgets and guards. New columns are nullable or have a constant default, so that no row is rewritten. The history of attempts follows in a
-- revision of its own: none locks two tables that are in use.

-- budget_start: attempts numbered up to it came before the last redrive; a failure's budgets count those after it.
-- max_age_s: how old, counted from the first claim since then, the job may be when another try starts; each claim writes its handler's.
-- failed_because: why no further try is made of a failed job, beside its last error, which stays the real one.
ALTER TABLE {schema}.jobs
  ADD COLUMN budget_start integer NOT NULL DEFAULT 0,
  ADD COLUMN max_age_s integer,
  ADD COLUMN failed_because text;

-- Writes of attempts that had lost their lease, refused by the fence. Rows are only ever added, and leave with their job.
CREATE TABLE {schema}.refusals (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id  uuid NOT NULL,
  attempt integer NOT NULL,
  at      timestamptz NOT NULL,
  what    text NOT NULL,
  worker  text NOT NULL
);
CREATE INDEX refusals_job ON {schema}.refusals (job_id);

-- What is history stays as it was written: no row is changed, and none leaves before its job.
CREATE FUNCTION {schema}.refuse_change() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  RAISE EXCEPTION 'a row of % is never changed once it is written', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', HINT = 'history is only added to';
END
$function$;
-- After the whole statement, so that one that takes a job and its history at once passes.
CREATE FUNCTION {schema}.refuse_parting() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  IF EXISTS (SELECT FROM {schema}.jobs AS j WHERE j.id = OLD.job_id) THEN
    RAISE EXCEPTION 'a row of % leaves only with its job', TG_TABLE_NAME
      USING ERRCODE = 'restrict_violation', HINT = 'delete the job before its history, or in the same statement';
  END IF;
  RETURN NULL;
END
$function$;
CREATE TRIGGER refusals_kept BEFORE UPDATE ON {schema}.refusals FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER refusals_parting AFTER DELETE ON {schema}.refusals FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_parting();

-- Which moves a job's row may make. A move that is not named is refused; the number of attempts grows by one with a claim and else not at
-- all; a redrive, and nothing else, begins a new budget. The trigger's condition lets the two moves of every successful job pass without a call,
-- and is as short as can be: it is compiled anew for each statement. It comes after the update: one before it would write a lock to each row.
CREATE FUNCTION {schema}.check_move() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_move text := OLD.state || ' -> ' || NEW.state;
BEGIN
  IF (OLD.state = NEW.state OR v_move IN (
      'ready -> running', 'ready -> failed', 'ready -> cancelled',
      'running -> succeeded', 'running -> ready', 'running -> failed', 'running -> cancelled',
      'failed -> ready', 'cancelled -> ready'))
    AND NEW.attempt_count - OLD.attempt_count = (v_move = 'ready -> running')::integer
    AND NEW.budget_start = (CASE WHEN v_move IN ('failed -> ready', 'cancelled -> ready') THEN NEW.attempt_count ELSE OLD.budget_start END)
  THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'job % can''t go from % to %, from attempt % to %, with its budget from % to %', OLD.id, OLD.state, NEW.state,
    OLD.attempt_count, NEW.attempt_count, OLD.budget_start, NEW.budget_start
    USING ERRCODE = 'restrict_violation', HINT = 'the legal moves stand in docs/guarantees.md';
END
$function$;
CREATE TRIGGER jobs_moves AFTER UPDATE ON {schema}.jobs FOR EACH ROW
  WHEN (OLD.state || NEW.state IS DISTINCT FROM ('{runningsucceeded,readyrunning}'::text[])[NEW.attempt_count - OLD.attempt_count + 1])
  EXECUTE FUNCTION {schema}.check_move();
