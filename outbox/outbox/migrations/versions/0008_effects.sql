-- The effects ledger and the inbox. Nothing before this revision wrote either table.

-- call: drawn for each time that the effect is sent; what is written afterwards names the one that it has seen.
-- result_note: why a confirmed effect has no stored result. settled_by: how it was confirmed.
ALTER TABLE {schema}.effects
  ADD COLUMN call uuid,
  ADD COLUMN sends integer NOT NULL DEFAULT 0,
  ADD COLUMN settled_by text,
  ADD COLUMN result_note text,
  ADD COLUMN error_code text,
  ADD COLUMN error_message text,
  ADD COLUMN updated_at timestamptz,
  DROP CONSTRAINT effects_state,
  ADD CONSTRAINT effects_state CHECK (state IN ('pending', 'confirmed', 'uncertain', 'not_done')),
  ADD CONSTRAINT effects_confirmed CHECK ((state = 'confirmed') = (confirmed_at IS NOT NULL)),
  ADD CONSTRAINT effects_settled_by CHECK (settled_by IN ('send', 'reconcile', 'policy', 'person'));

-- What a person may have to look at, oldest first, however many effects there have been.
CREATE INDEX effects_open ON {schema}.effects (created_at) WHERE state IN ('pending', 'uncertain');

-- A confirmed effect stays confirmed, and no effect changes what it is of: whatever the code does, the database refuses.
CREATE FUNCTION {schema}.refuse_effect_change() RETURNS trigger
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  RAISE EXCEPTION 'effect % of job % is %; it can''t become %, or another effect', OLD.name, OLD.job_id, OLD.state, NEW.state
    USING ERRCODE = 'check_violation';
END
$function$;
CREATE TRIGGER effects_keep BEFORE UPDATE ON {schema}.effects FOR EACH ROW
  WHEN (OLD.state = 'confirmed' AND NEW.state <> 'confirmed' OR OLD.state = 'not_done' AND NEW.state NOT IN ('not_done', 'pending')
    OR OLD.job_id <> NEW.job_id OR OLD.name <> NEW.name OR OLD.arguments_digest <> NEW.arguments_digest)
  EXECUTE FUNCTION {schema}.refuse_effect_change();

-- Claims an inbox key and returns NULL, or who holds it as JSON: [digest, result], empty if it can't be seen. The suffix is the function's version.
-- READ COMMITTED: a row that a rival has just committed is seen by the last statement here. Above it PostgreSQL raises 40001 for a row that the
-- snapshot doesn't hold; a subtransaction keeps the caller's transaction usable.
CREATE FUNCTION {schema}.once_1(p_key text, p_digest text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_taken boolean;
BEGIN
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
    INSERT INTO {schema}.inbox (key, arguments_digest, created_at) VALUES (p_key, decode(p_digest, 'hex'), {schema}.clock())
    ON CONFLICT (key) DO NOTHING;
    v_taken := NOT FOUND;
  ELSE
    BEGIN
      INSERT INTO {schema}.inbox (key, arguments_digest, created_at) VALUES (p_key, decode(p_digest, 'hex'), {schema}.clock())
      ON CONFLICT (key) DO NOTHING;
      v_taken := NOT FOUND;
    EXCEPTION WHEN serialization_failure THEN
      v_taken := true;
    END;
  END IF;
  IF NOT v_taken THEN
    RETURN NULL;
  END IF;
  RETURN coalesce(
    (SELECT json_build_array(encode(i.arguments_digest, 'hex'), i.result::text)::text FROM {schema}.inbox AS i WHERE i.key = p_key), '[]');
END
$function$;
