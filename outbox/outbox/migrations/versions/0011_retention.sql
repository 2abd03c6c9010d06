-- Retention: payloads that are erased before their rows, and where the walk through old jobs stands. Processes of the releases before go on beside it.

ALTER TABLE {schema}.jobs ADD COLUMN payload_erased_at timestamptz;

-- As it was, and besides: an erased job can't run again, whoever tries, for its payload is gone. No constraint says so: to add one, all jobs would
-- have to be read.
CREATE OR REPLACE FUNCTION {schema}.check_move() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_move text := OLD.state || ' -> ' || NEW.state;
BEGIN
  IF NEW.payload_erased_at IS NOT NULL AND NEW.finished_at IS NULL THEN
    RAISE EXCEPTION 'job % can''t run again: its payload was erased', NEW.id
      USING ERRCODE = 'restrict_violation', HINT = 'submit the work anew, under another key';
  END IF;
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

-- How far the walk through old jobs has come, so that a restart goes on there, and only one relay walks at a time: it locks the row.
CREATE TABLE {schema}.walks (
  name     text PRIMARY KEY,
  place    uuid NOT NULL,
  ended_at timestamptz
);
INSERT INTO {schema}.walks (name, place) VALUES ('retention', '00000000-0000-0000-0000-000000000000');
