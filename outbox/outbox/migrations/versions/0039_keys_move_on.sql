-- What is next of a concurrency key keeps it for five seconds only, and the slot of an expired lease is given away together with what its worker may still
-- write. The functions are as they were but for that; rows that wait are left alone.
-- When a job was put back in line as the next of its key.
ALTER TABLE {schema}.outbox ADD COLUMN limit_next_at timestamptz;

-- Before a hint goes out. The lock makes releases of one key come one at a time, of whichever relay; whoever doesn't get it leaves the row for the
-- next look. 256 of them for all keys together, so that no batch fills the server's lock table. Each statement in here sees what has been committed by then,
-- and what the same release has let go before.
CREATE OR REPLACE FUNCTION {schema}.admit_by_key() RETURNS trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
  v_now timestamptz;
  v_most integer := coalesce(NEW.limit_max, 1);
  v_out integer;
  v_leased integer;
  v_lapsed integer;
  v_held integer;
  v_lost uuid[] := '{}';
  v_before uuid;
  v_before_phase text;
  v_letter uuid;
  v_settled boolean := true;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1801812339, (hashtextextended(concat_ws(E'\x1f', NEW.tenant, NEW.limit_group, NEW.limit_key), 0) & 255)::integer
      + (TG_RELID::bigint % 8000000)::integer * 256) THEN
    RETURN NULL;
  END IF;
  v_now := {schema}.clock();
  SELECT count(*), count(*) FILTER (WHERE o.phase = 'leased'), count(*) FILTER (WHERE o.phase = 'leased' AND o.lease_expires_at <= v_now)
  INTO v_out, v_leased, v_lapsed
  FROM {schema}.outbox AS o
  WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant AND o.phase <> 'owed';
  IF v_lapsed > 0 THEN
    -- A lease counts until it has expired and nobody writes under it any more: a heartbeat refuses to, one that began in time holds the row, and so
    -- does job.transaction().
    SELECT coalesce(array_agg(s.job_id), '{}') INTO v_lost FROM (
      SELECT o.job_id FROM {schema}.outbox AS o
      WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant AND o.phase <> 'owed'
        AND o.phase = 'leased' AND o.lease_expires_at <= v_now
      FOR UPDATE SKIP LOCKED) AS s;
    v_out := v_out - cardinality(v_lost);
  END IF;
  IF NEW.limit_place IS NOT NULL THEN
    SELECT o.job_id, o.phase INTO v_before, v_before_phase FROM {schema}.outbox AS o
    WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant
      AND o.limit_place IS NOT NULL AND (o.limit_place, o.job_id) < (NEW.limit_place, NEW.job_id)
    ORDER BY o.limit_place, o.job_id LIMIT 1;
    IF v_before IS NULL THEN
      SELECT d.job_id INTO v_letter FROM {schema}.dead_letters AS d
      WHERE d.limit_key = NEW.limit_key AND d.limit_group = NEW.limit_group AND d.tenant = NEW.tenant AND d.discarded_at IS NULL
        AND (d.limit_place, d.job_id) < (NEW.limit_place, NEW.job_id)
      ORDER BY d.limit_place, d.job_id LIMIT 1;
    END IF;
  END IF;
  IF v_out < v_most AND v_before IS NULL AND v_letter IS NULL THEN
    -- Where the slot of an expired lease is given away, its attempt gets another token: from here on the fence refuses all that its worker still writes, and
    -- the recovery finds it as before. No waiting for whoever holds a job's row.
    IF v_out + cardinality(v_lost) >= v_most THEN
      SELECT count(*) INTO v_held FROM (SELECT FROM {schema}.jobs AS j WHERE j.id = ANY (v_lost) FOR NO KEY UPDATE SKIP LOCKED) AS s;
      IF v_held < (SELECT count(*) FROM {schema}.jobs AS j WHERE j.id = ANY (v_lost)) THEN
        RETURN NULL;
      END IF;
      WITH moved AS (
        UPDATE {schema}.outbox AS o SET lease_token = gen_random_uuid()
        FROM {schema}.jobs AS j
        WHERE o.job_id = ANY (v_lost) AND j.id = o.job_id AND j.state = 'running' AND j.lease_token = o.lease_token
        RETURNING o.job_id, o.lease_token
      )
      UPDATE {schema}.jobs AS j SET lease_token = m.lease_token FROM moved AS m WHERE j.id = m.job_id;
    END IF;
    IF OLD.last_error IN ('next of its key', 'waits for its key') THEN
      NEW.last_error := NULL;
    END IF;
    RETURN NEW;
  END IF;
  -- Whoever frees the key from now on has to wait for this transaction, and then finds the row aside. If one of those in the way is just being freed, its end
  -- may not see this row: then the row stays in line.
  IF v_out >= v_most AND v_leased > 0 THEN
    SELECT count(*) INTO v_held FROM (
      SELECT FROM {schema}.outbox AS o
      WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant AND o.phase <> 'owed' AND o.phase = 'leased'
      FOR KEY SHARE SKIP LOCKED) AS s;
    v_settled := v_held >= v_leased;
  END IF;
  IF v_settled AND v_before IS NOT NULL AND v_before_phase <> 'released' THEN
    PERFORM FROM {schema}.outbox AS o WHERE o.job_id = v_before FOR KEY SHARE SKIP LOCKED;
    v_settled := FOUND;
  ELSIF v_settled AND v_letter IS NOT NULL THEN
    PERFORM FROM {schema}.dead_letters AS d WHERE d.job_id = v_letter AND d.discarded_at IS NULL FOR SHARE SKIP LOCKED;
    v_settled := FOUND;
  END IF;
  -- One of a key is enough to wait in line, where it is in the way of others.
  IF NOT v_settled AND NOT EXISTS (
    SELECT 1 FROM {schema}.outbox AS o
    WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant
      AND (o.phase <> 'owed' OR o.last_error = 'next of its key') AND o.phase = 'owed' AND o.job_id <> NEW.job_id
  ) THEN
    IF OLD.last_error = 'next of its key' THEN
      RETURN NULL;
    END IF;
    NEW := OLD;
    NEW.last_error := 'next of its key';
    NEW.limit_next_at := v_now;
    RETURN NEW;
  END IF;
  -- Its place in line six thousand years on: behind all that has a time, in the order among themselves, and the way back is known. In hours, which are as
  -- long in every time zone.
  NEW := OLD;
  NEW.order_key := OLD.order_key + interval '52594920 hours';
  NEW.due_at := greatest(OLD.order_key, OLD.due_at) + interval '52594920 hours';
  NEW.last_error := 'waits for its key';
  RETURN NEW;
END
$function$;

-- Puts back in line as many of those that wait for a key as may start now, and returns how many. Those that have been put back before, and not yet been
-- released, count, so that none is put back twice: for five seconds, while they are due and their queue isn't paused. Whoever can't go by then (nobody has
-- its version, its queue has no room, it was put off) keeps the others no longer, and costs them one look each five seconds: what may start is asked again
-- of each that goes out. Both ways, for clocks that are put back.
CREATE OR REPLACE FUNCTION {schema}.free_key(p_tenant text, p_group text, p_key text) RETURNS integer
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
  v_now timestamptz := {schema}.clock();
  v_taken integer;
  v_first record;
  v_next record;
  v_moved integer := 0;
BEGIN
  SELECT count(*) INTO v_taken FROM {schema}.outbox AS o
  WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
    AND CASE o.phase WHEN 'leased' THEN o.lease_expires_at > v_now WHEN 'released' THEN true ELSE o.due_at <= v_now
      AND coalesce(o.limit_next_at BETWEEN v_now - interval '5 s' AND v_now + interval '5 s', false) AND NOT EXISTS (
        SELECT 1 FROM {schema}.pauses AS p
        WHERE p.resumed_at IS NULL AND (p.scope = 'everything' OR (p.scope = 'queue' AND p.name = o.queue))) END;
  SELECT o.job_id, o.phase, o.last_error, o.limit_place INTO v_first FROM {schema}.outbox AS o
  WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND o.limit_place IS NOT NULL
  ORDER BY o.limit_place, o.job_id LIMIT 1;
  IF v_taken = 0 AND v_first.phase = 'owed' AND v_first.last_error = 'waits for its key' AND NOT EXISTS (
    SELECT 1 FROM {schema}.dead_letters AS d
    WHERE d.limit_key = p_key AND d.limit_group = p_group AND d.tenant = p_tenant AND d.discarded_at IS NULL
      AND (d.limit_place, d.job_id) < (v_first.limit_place, v_first.job_id)
  ) THEN
    v_moved := {schema}.put_back_by_key(v_first.job_id, v_now);
    v_taken := v_taken + v_moved;
  END IF;
  LOOP
    SELECT o.job_id, o.limit_max INTO v_next FROM {schema}.outbox AS o
    WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND o.phase = 'owed' AND o.last_error = 'waits for its key'
      AND o.limit_place IS NULL AND o.order_key > '6900-01-01Z'
    ORDER BY o.order_key, o.job_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    EXIT WHEN v_next.job_id IS NULL OR v_taken >= coalesce(v_next.limit_max, 1);
    v_taken := v_taken + {schema}.put_back_by_key(v_next.job_id, v_now);
    v_moved := v_moved + 1;
  END LOOP;
  RETURN v_moved;
END
$function$;

-- Back to its place in line. Where nothing of its queue stands before that, it stands first anywhere behind it, too, and goes to where looks begin that
-- remember where the line began: they would not see it before.
CREATE OR REPLACE FUNCTION {schema}.put_back_by_key(p_job uuid, p_now timestamptz) RETURNS integer
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
  v_queue text;
  v_place timestamptz;
  v_first timestamptz;
BEGIN
  SELECT w.queue, w.order_key - interval '52594920 hours' INTO v_queue, v_place FROM {schema}.outbox AS w
  WHERE w.job_id = p_job AND w.phase = 'owed' AND w.last_error = 'waits for its key' AND w.order_key > '6900-01-01Z'
  FOR UPDATE SKIP LOCKED;
  IF v_queue IS NULL THEN
    RETURN 0;
  END IF;
  SELECT o.order_key INTO v_first FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = v_queue ORDER BY o.queue, o.order_key, o.job_id LIMIT 1;
  IF v_first > v_place THEN
    v_place := greatest(v_place, least(v_first + interval '1 microsecond', p_now - interval '0.5 s'));
  END IF;
  UPDATE {schema}.outbox AS o
  SET order_key = v_place, due_at = greatest(least(o.due_at - interval '52594920 hours', p_now), least(v_place, p_now)), last_error = 'next of its key',
    limit_next_at = p_now
  WHERE o.job_id = p_job;
  RETURN 1;
END
$function$;
