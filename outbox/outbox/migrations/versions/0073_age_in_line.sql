-- Since when the oldest job has been due that stands in its queue's line, or the time of the count where none is: what is set aside for its concurrency key
-- doesn't. A process of a release before leaves it as it is: then the age that is reckoned from it grows up to oldest_due_s, which holds as before.
ALTER TABLE {schema}.queue_figures ADD COLUMN line_due_since timestamptz;

-- As it was, but that max_age is about the line: what waits for its key waits for others of that key, be it for a person where one has failed, and says
-- nothing of the queue. Its backlog counts.
CREATE OR REPLACE FUNCTION {schema}.bounded_1(p_jobs text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
DECLARE
  v_options text[];
  v_now timestamptz;
  v_until timestamptz;
  v_latest timestamptz;
  v_full record;
BEGIN
  -- Nearly every call ends here: where nothing is full, nothing more is looked at.
  IF p_bounded = '' OR NOT EXISTS (
    SELECT 1 FROM {schema}.queue_bounds AS b JOIN {schema}.queue_figures AS f ON f.queue = b.queue AND f.tenant = b.tenant
    WHERE b.queue = ANY (string_to_array(p_bounded, E'\x1f')) AND (f.backlog >= b.max_backlog
      OR least(f.oldest_due_s, CAST(extract(epoch FROM f.counted_at - f.line_due_since) AS float8)) >= b.max_oldest_s)
  ) THEN
    RETURN NULL;
  END IF;
  v_options := string_to_array(split_part(p_jobs, E'\x1e', 1), E'\x1f', '');
  v_now := {schema}.clock();
  IF v_options[3]::timestamptz > v_now THEN
    RETURN NULL;
  END IF;
  FOR v_full IN
    SELECT b.queue, b.tenant, b.policy, b.max_backlog, b.max_oldest_s, b.longest_s, f.backlog, f.capped,
      least(f.oldest_due_s, CAST(extract(epoch FROM f.counted_at - f.line_due_since) AS float8)) AS oldest_due_s, f.drain_s,
      extract(epoch FROM v_now - f.counted_at) AS age_s
    FROM {schema}.queue_bounds AS b
    JOIN {schema}.queue_figures AS f ON f.queue = b.queue AND f.tenant = b.tenant
    WHERE b.queue = ANY (string_to_array(p_bounded, E'\x1f')) AND b.tenant IN ('', v_options[1])
      AND (f.backlog >= b.max_backlog
      OR least(f.oldest_due_s, CAST(extract(epoch FROM f.counted_at - f.line_due_since) AS float8)) >= b.max_oldest_s)
      AND f.counted_at BETWEEN v_now - interval '2 minutes' AND v_now + interval '2 minutes'
      AND (b.policy <> 'shed' OR v_options[2]::smallint < b.keeps)
    ORDER BY b.policy = 'defer', b.queue, b.tenant
  LOOP
    v_until := v_now + make_interval(secs => least(greatest(coalesce(v_full.drain_s, v_full.longest_s), 1), v_full.longest_s));
    IF v_full.policy <> 'defer' OR v_options[4]::timestamptz <= v_until THEN
      RETURN E'\x1d' || row_to_json(v_full);
    END IF;
    v_latest := greatest(v_latest, v_until);
  END LOOP;
  v_options[3] := to_char(v_latest AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');  -- read alike in every DateStyle
  RETURN CASE WHEN v_latest IS NOT NULL THEN E'\x1e' || array_to_string(v_options, E'\x1f', '') END;
END
$function$;
