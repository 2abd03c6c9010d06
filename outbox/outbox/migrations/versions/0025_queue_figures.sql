-- What is known of each queue at a glance. Writers and workers of the releases before go on beside it.

-- How many jobs of each queue a consumer ended lately, in jobs a second, as it tells with its sign of life. A constant default rewrites no row.
ALTER TABLE {schema}.processes ADD COLUMN ended_per_s jsonb NOT NULL DEFAULT '{}';

-- Figures, a row for each queue with live jobs (tenant '') and for each tenant of one that has a bound of its own. Counted every second or so by
-- one process at a time, and dearer counts less often; nothing that moves a job rests on them.
-- backlog: due and not started; capped: it is at least so many. NULL figures are unknown.
CREATE TABLE {schema}.queue_figures (
  queue        text NOT NULL,
  tenant       text NOT NULL DEFAULT '',
  backlog      integer NOT NULL,
  capped       boolean NOT NULL,
  scheduled    integer NOT NULL,
  running      integer NOT NULL,
  oldest_due_s float8,
  in_per_s     float8,
  out_per_s    float8,
  late_mean_s  float8,
  late_max_s   float8,
  drain_s      float8,
  counted_at   timestamptz NOT NULL,
  PRIMARY KEY (queue, tenant)
) WITH (fillfactor = 50);

-- When the next count is due. Whoever counts holds the row, so that others pass.
CREATE TABLE {schema}.queue_count (
  name       text PRIMARY KEY,
  next_at    timestamptz NOT NULL,
  counted_at timestamptz
) WITH (fillfactor = 50);
INSERT INTO {schema}.queue_count (name, next_at) VALUES ('figures', '1970-01-01Z');

-- How full a queue may be, or a tenant's part of it (tenant '': the whole queue), and what becomes of a job beyond that. A few rows at most.
CREATE TABLE {schema}.queue_bounds (
  queue        text NOT NULL,
  tenant       text NOT NULL DEFAULT '',
  max_backlog  integer,
  max_oldest_s float8,
  policy       text NOT NULL,
  keeps        smallint NOT NULL DEFAULT 0,
  longest_s    float8 NOT NULL,
  actor        text NOT NULL,
  reason       text NOT NULL,
  at           timestamptz NOT NULL,
  PRIMARY KEY (queue, tenant),
  CONSTRAINT queue_bounds_policy CHECK (policy IN ('refuse', 'defer', 'shed')),
  CONSTRAINT queue_bounds_some CHECK (max_backlog IS NOT NULL OR max_oldest_s IS NOT NULL),
  CONSTRAINT queue_bounds_limits CHECK (max_backlog > 0 AND max_oldest_s > 0 AND longest_s > 0)
);

-- Holds jobs that are to be written to the bounds of their queues. p_jobs is write_jobs_2's text; p_bounded names the queues whose bounds hold,
-- between U+001F. NULL: go ahead. U+001D and JSON: refused. U+001E and text: deferred, if they are sent again with these options.
-- Nothing is counted here: the last figures are compared, and those that are older than two minutes (FRESH_S in queue_figures.py) hold nobody up. Nor
-- does anything a job that is set for later: it is no part of what waits now. A deferred job that could then not run before its deadline is refused.
CREATE FUNCTION {schema}.bounded_1(p_jobs text, p_bounded text) RETURNS text
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
    WHERE b.queue = ANY (string_to_array(p_bounded, E'\x1f')) AND (f.backlog >= b.max_backlog OR f.oldest_due_s >= b.max_oldest_s)
  ) THEN
    RETURN NULL;
  END IF;
  v_options := string_to_array(split_part(p_jobs, E'\x1e', 1), E'\x1f', '');
  v_now := {schema}.clock();
  IF v_options[3]::timestamptz > v_now THEN
    RETURN NULL;
  END IF;
  FOR v_full IN
    SELECT b.queue, b.tenant, b.policy, b.max_backlog, b.max_oldest_s, b.longest_s, f.backlog, f.capped, f.oldest_due_s, f.drain_s,
      extract(epoch FROM v_now - f.counted_at) AS age_s
    FROM {schema}.queue_bounds AS b
    JOIN {schema}.queue_figures AS f ON f.queue = b.queue AND f.tenant = b.tenant
    WHERE b.queue = ANY (string_to_array(p_bounded, E'\x1f')) AND b.tenant IN ('', v_options[1])
      AND (f.backlog >= b.max_backlog OR f.oldest_due_s >= b.max_oldest_s)
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

-- The writer's functions as they were, but for the bounds of queues: what bounded_1 holds up is not written, and what it says is the answer.
CREATE FUNCTION {schema}.enqueue_one_3(p_job text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  RETURN coalesce({schema}.bounded_1(p_job, p_bounded), {schema}.enqueue_one_2(p_job));
END
$function$;

CREATE FUNCTION {schema}.enqueue_3(p_jobs text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  RETURN coalesce({schema}.bounded_1(p_jobs, p_bounded), {schema}.enqueue_2(p_jobs));
END
$function$;

-- NULL: written; an empty text: not written, since a key is taken.
CREATE FUNCTION {schema}.enqueue_new_3(p_jobs text, p_bounded text) RETURNS text
  LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
  RETURN coalesce({schema}.bounded_1(p_jobs, p_bounded), CASE WHEN NOT {schema}.enqueue_new_2(p_jobs) THEN '' END);
END
$function$;
