-- What is set aside for its key stands six thousand years on, and since `0071` no row may stand twice as far: one that a hand had made due there would have the
-- release of its whole queue fail. It stays where it is, and is not due. The function is as it was but for that.

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
  v_ahead uuid;
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
  -- Who goes by a higher number doesn't pass the first of those that wait if that one goes by a lower: fresh ones would keep it from its turn for ever.
  -- Nobody waits behind one that has failed and blocks, or that can't be due.
  IF v_out BETWEEN 1 AND v_most - 1 AND NEW.limit_place IS NULL AND OLD.last_error IS DISTINCT FROM 'next of its key' THEN
    SELECT w.job_id INTO v_ahead FROM (
      SELECT o.job_id, o.order_key, o.limit_max FROM {schema}.outbox AS o
      WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant AND o.phase = 'owed'
        AND o.last_error = 'waits for its key' AND o.limit_place IS NULL
      ORDER BY o.order_key, o.job_id LIMIT 1) AS w
    WHERE coalesce(w.limit_max, 1) < v_most AND w.order_key - interval '52594920 hours' < NEW.order_key;
    IF v_ahead IS NULL THEN
      SELECT w.job_id INTO v_ahead FROM (
        SELECT o.job_id, o.order_key, o.phase, o.last_error, o.limit_place FROM {schema}.outbox AS o
        WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant AND o.limit_place IS NOT NULL
        ORDER BY o.limit_place, o.job_id LIMIT 1) AS w
      WHERE w.phase = 'owed' AND w.last_error = 'waits for its key' AND w.order_key - interval '52594920 hours' < NEW.order_key
        AND NOT EXISTS (
          SELECT 1 FROM {schema}.dead_letters AS d
          WHERE d.limit_key = NEW.limit_key AND d.limit_group = NEW.limit_group AND d.tenant = NEW.tenant AND d.discarded_at IS NULL
            AND (d.limit_place, d.job_id) < (w.limit_place, w.job_id));
    END IF;
  END IF;
  IF v_out < v_most AND v_before IS NULL AND v_letter IS NULL AND v_ahead IS NULL THEN
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
  IF (v_out >= v_most OR v_ahead IS NOT NULL) AND v_leased > 0 THEN
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
  IF OLD.order_key < timestamptz '6900-01-01Z' THEN
    NEW.order_key := OLD.order_key + interval '52594920 hours';
    NEW.due_at := greatest(OLD.order_key, OLD.due_at) + interval '52594920 hours';
  ELSE
    -- It stands there already and is due all the same, by somebody's hand. Twice as far no row may stand, and the release would fail for all.
    NEW.due_at := OLD.order_key;
  END IF;
  NEW.last_error := 'waits for its key';
  RETURN NEW;
END
$function$;
