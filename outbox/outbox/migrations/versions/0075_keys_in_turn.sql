-- A job with a concurrency key that waits for an end which is not yet committed keeps no other from its queue's room; the first of an order is not passed by those that a
-- higher number lets go beside each other; and what comes before one of an order is read at one moment. The functions are as they were but for that.

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
    -- Both by one statement: a redrive makes a row of a letter, and must be seen as either.
    SELECT b.job_id, b.phase, CASE WHEN b.job_id IS NULL THEN l.job_id END INTO v_before, v_before_phase, v_letter
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
      SELECT o.job_id, o.phase FROM {schema}.outbox AS o
      WHERE o.limit_key = NEW.limit_key AND o.limit_group = NEW.limit_group AND o.tenant = NEW.tenant
        AND o.limit_place IS NOT NULL AND (o.limit_place, o.job_id) < (NEW.limit_place, NEW.job_id)
      ORDER BY o.limit_place, o.job_id LIMIT 1) AS b ON true
    LEFT JOIN LATERAL (
      SELECT d.job_id FROM {schema}.dead_letters AS d
      WHERE d.limit_key = NEW.limit_key AND d.limit_group = NEW.limit_group AND d.tenant = NEW.tenant AND d.discarded_at IS NULL
        AND (d.limit_place, d.job_id) < (NEW.limit_place, NEW.job_id)
      ORDER BY d.limit_place, d.job_id LIMIT 1) AS l ON true;
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
    NEW := OLD;
    IF OLD.last_error = 'next of its key' THEN
      -- Found so again: others go in its place meanwhile, however little room there is.
      NEW.due_at := v_now + interval '0.1 s';
    ELSE
      NEW.last_error := 'next of its key';
      NEW.limit_next_at := v_now;
    END IF;
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

-- Puts back in line as many of those that wait for a key as may start now, and returns how many. Those that have been put back before, and not yet been
-- released, count, so that none is put back twice: for five seconds, while they are due and their queue isn't paused. Whoever can't go by then (nobody has
-- its version, its queue has no room, it was put off) keeps the others no longer, and costs them one look each five seconds: what may start is asked again
-- of each that goes out. Both ways, for clocks that are put back. One that is put off for a moment, because an end in its way is not yet committed, counts as well.
CREATE OR REPLACE FUNCTION {schema}.free_key(p_tenant text, p_group text, p_key text) RETURNS integer
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
  v_now timestamptz := {schema}.clock();
  v_taken integer;
  v_first record;
  v_next record;
  v_waits boolean;
  v_moved integer := 0;
BEGIN
  SELECT count(*) INTO v_taken FROM {schema}.outbox AS o
  WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND (o.phase <> 'owed' OR o.last_error = 'next of its key')
    AND CASE o.phase WHEN 'leased' THEN o.lease_expires_at > v_now WHEN 'released' THEN true ELSE o.due_at <= v_now + interval '1 s'
      AND coalesce(o.limit_next_at BETWEEN v_now - interval '5 s' AND v_now + interval '5 s', false) AND NOT EXISTS (
        SELECT 1 FROM {schema}.pauses AS p
        WHERE p.resumed_at IS NULL AND (p.scope = 'everything' OR (p.scope = 'queue' AND p.name = o.queue))) END;
  SELECT o.job_id, o.phase, o.last_error, o.limit_place, o.order_key INTO v_first FROM {schema}.outbox AS o
  WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND o.limit_place IS NOT NULL
  ORDER BY o.limit_place, o.job_id LIMIT 1;
  v_waits := coalesce(v_first.phase = 'owed' AND v_first.last_error = 'waits for its key', false) AND NOT EXISTS (
    SELECT 1 FROM {schema}.dead_letters AS d
    WHERE d.limit_key = p_key AND d.limit_group = p_group AND d.tenant = p_tenant AND d.discarded_at IS NULL
      AND (d.limit_place, d.job_id) < (v_first.limit_place, v_first.job_id));
  IF v_waits AND v_taken = 0 THEN
    v_moved := {schema}.put_back_by_key(v_first.job_id, v_now);
    v_taken := v_taken + v_moved;
    v_waits := v_moved = 0;
  END IF;
  LOOP
    SELECT o.job_id, o.limit_max, o.order_key INTO v_next FROM {schema}.outbox AS o
    WHERE o.limit_key = p_key AND o.limit_group = p_group AND o.tenant = p_tenant AND o.phase = 'owed' AND o.last_error = 'waits for its key'
      AND o.limit_place IS NULL AND o.order_key > '6900-01-01Z'
    ORDER BY o.order_key, o.job_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    EXIT WHEN v_next.job_id IS NULL OR v_taken >= coalesce(v_next.limit_max, 1);
    -- Nor does this one pass the first of an order that waits until nothing of its key is under way.
    EXIT WHEN v_waits AND v_taken > 0 AND v_first.order_key < v_next.order_key;
    v_taken := v_taken + {schema}.put_back_by_key(v_next.job_id, v_now);
    v_moved := v_moved + 1;
  END LOOP;
  RETURN v_moved;
END
$function$;
