-- Purpose: say exactly which jobs a redrive is about, and in which state: how many, of which cause, with what effects, which of those named
--   would start before the set of jobs that they were to wait for is complete, and a fingerprint of all that and of the terms. With an operation's id, and only if the fingerprint is the expected one and a new deadline is to come, begin that
--   operation with exactly these jobs, unless it has begun already.
-- Transition: none
-- Parameters: job_ids (or NULL: open dead letters by kind, code, queue, tenant, older_than_s, that had failed at until, or now), deadline_at,
--   include_uncertain, most, operation_id (NULL: look only), expected (or NULL), actor, reason, chosen, rate_per_s, canary, stop_on_same_code,
--   failure_ratio, ratio_at_least
-- Locks: none but new rows, and who begins the same operation at once waits for the first. What changes from here on is seen when each job is
--   put back. Index: those of dead_letters; redrive_items_job; primary keys; join_members_pkey for 1000 members of a set that are still awaited.
WITH bounds AS MATERIALIZED (
  SELECT coalesce(CAST(:until AS timestamptz), c.now) AS until, c.now FROM (SELECT {schema}.clock() AS now) AS c
), named AS MATERIALIZED (
  SELECT u.id FROM unnest(CAST(:job_ids AS uuid[])) AS u(id)
  UNION ALL
  SELECT d.job_id FROM {schema}.dead_letters AS d CROSS JOIN bounds AS b
  WHERE CAST(:job_ids AS uuid[]) IS NULL AND d.discarded_at IS NULL AND d.failed_at <= b.until
    AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
    AND (CAST(:code AS text) IS NULL OR d.code = CAST(:code AS text))
    AND (CAST(:queue AS text) IS NULL OR d.queue = CAST(:queue AS text))
    AND (CAST(:tenant AS text) IS NULL OR d.tenant = CAST(:tenant AS text))
    AND (CAST(:older_than_s AS float8) IS NULL OR d.failed_at <= b.until - make_interval(secs => CAST(:older_than_s AS float8)))
), acted AS (
  SELECT e.job_id, count(*) FILTER (WHERE e.state = 'confirmed') AS confirmed, count(*) FILTER (WHERE e.state = 'uncertain') AS uncertain,
    count(*) FILTER (WHERE e.state = 'pending') AS pending, string_agg(concat_ws(' ', e.name, e.state), ',' ORDER BY e.name) AS mark
  FROM {schema}.effects AS e WHERE e.job_id IN (SELECT n.id FROM named AS n)
  GROUP BY e.job_id
), picked AS MATERIALIZED (
  SELECT j.id, j.kind, j.tenant, j.logical_key, j.state, j.attempt_count, j.last_error_code AS code, j.finished_at,
    coalesce(a.confirmed, 0) AS confirmed, coalesce(a.uncertain, 0) AS uncertain, coalesce(a.pending, 0) AS pending,
    t.set_left, t.set_stopped,
    {redrive_refusal} AS refusal,
    concat_ws('|', j.id, j.state, j.attempt_count, j.last_error_code, extract(epoch FROM j.finished_at), encode(j.payload_digest, 'hex'), a.mark,
      'erased ' || j.payload_erased_at, 'waits in ' || w.operations, CASE WHEN CAST(:job_ids AS uuid[]) IS NOT NULL THEN
        'discarded ' || (SELECT d.discarded_at FROM {schema}.dead_letters AS d WHERE d.job_id = j.id) END,
      'set ' || t.set_left || ' ' || t.set_stopped) AS mark
  FROM named AS n JOIN {schema}.jobs AS j ON j.id = n.id LEFT JOIN acted AS a ON a.job_id = j.id CROSS JOIN bounds AS c
    CROSS JOIN LATERAL (SELECT CAST(:job_ids AS uuid[]) IS NOT NULL AS by_ids, CAST(:include_uncertain AS boolean) AS include_uncertain,
      CAST(:deadline_at AS timestamptz) AS deadline_at, j.attempt_count, j.finished_at) AS q
    -- What waits in another redrive already, whose canaries and pace this one would pass by. One probe for each job: however much others hold.
    CROSS JOIN LATERAL (
      SELECT string_agg(i.operation_id::text, ',' ORDER BY i.operation_id) AS operations
      FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
        CROSS JOIN LATERAL (SELECT j.id, j.attempt_count, j.finished_at) AS s
      WHERE i.job_id = j.id AND {waits_for_redrive}) AS w
    CROSS JOIN LATERAL (SELECT coalesce(a.uncertain, 0) + coalesce(a.pending, 0) > 0 AS has_open_effects, w.operations IS NOT NULL AS waits_elsewhere) AS s
    -- Of a job that is named and has never run: those of its set that have not ended as asked. What a look has counted counts on; once nobody
    -- waited any more it only let them go ('moot'). NULL where it waits for no set, or for none that is open.
    LEFT JOIN LATERAL (
      SELECT nullif(count(*), 0) AS set_left, count(*) FILTER (WHERE l.stopped) AS set_stopped
      FROM (
        SELECT o.condition = 'succeeded' AND (k.state IS NULL OR k.finished_at IS NOT NULL) AS stopped
        FROM {schema}.joins AS o JOIN {schema}.join_members AS m ON m.join_id = o.job_id
        LEFT JOIN LATERAL (SELECT x.state, x.finished_at FROM {schema}.jobs AS x WHERE x.id = m.job_id LIMIT 1) AS k ON true
        WHERE o.job_id = j.id AND o.outcome IS DISTINCT FROM 'started' AND coalesce(m.seen, 'moot') = 'moot'
          AND NOT CASE WHEN o.condition = 'succeeded' THEN k.state IS NOT DISTINCT FROM 'succeeded' ELSE k.state IS NULL OR k.finished_at IS NOT NULL END
        LIMIT 1000
      ) AS l
    ) AS t ON CAST(:job_ids AS uuid[]) IS NOT NULL AND j.attempt_count = 0
  WHERE CAST(:job_ids AS uuid[]) IS NOT NULL OR j.state = 'failed'
), stamp AS MATERIALIZED (
  -- Sums of two hashes: the same whatever the order, and no text of all jobs is held.
  SELECT count(*) AS total, left(encode(sha256(convert_to(concat_ws('/', count(*), sum(hashtextextended(p.mark, 0)::numeric),
    sum(hashtextextended(p.mark, 1)::numeric), CAST(:include_uncertain AS boolean), extract(epoch FROM CAST(:deadline_at AS timestamptz))), 'UTF8')),
    'hex'), 32) AS fingerprint
  FROM picked AS p
), begun AS (
  INSERT INTO {schema}.redrive_operations (id, actor, reason, chosen, by_ids, fingerprint, rate_per_s, canary, stop_on_same_code, failure_ratio,
    ratio_at_least, include_uncertain, deadline_at, total, next_at, created_at)
  SELECT CAST(:operation_id AS uuid), CAST(:actor AS text), CAST(:reason AS text), CAST(CAST(:chosen AS text) AS jsonb),
    CAST(:job_ids AS uuid[]) IS NOT NULL, s.fingerprint, CAST(:rate_per_s AS float8), CAST(:canary AS integer),
    CAST(:stop_on_same_code AS boolean), CAST(:failure_ratio AS float8), CAST(:ratio_at_least AS integer), CAST(:include_uncertain AS boolean),
    CAST(:deadline_at AS timestamptz), s.total, b.now, b.now
  FROM stamp AS s CROSS JOIN bounds AS b
  WHERE CAST(:operation_id AS uuid) IS NOT NULL AND s.total BETWEEN 1 AND CAST(:most AS integer)
    AND (CAST(:expected AS text) IS NULL OR s.fingerprint = CAST(:expected AS text))
    AND coalesce(CAST(:deadline_at AS timestamptz) > b.now, true)
  ON CONFLICT (id) DO NOTHING
  RETURNING id
), items AS (
  -- Canaries are taken from those that can be put back.
  INSERT INTO {schema}.redrive_items (operation_id, job_id, kind, tenant, code, attempt_count, finished_at, canary)
  SELECT o.id, p.id, p.kind, p.tenant, p.code, p.attempt_count, p.finished_at,
    row_number() OVER (ORDER BY p.refusal IS NOT NULL, p.id) <= CAST(:canary AS integer)
  FROM picked AS p CROSS JOIN begun AS o
  RETURNING job_id
), lanes AS (
  INSERT INTO {schema}.redrive_lanes (operation_id, kind, tenant, waiting, free_at)
  SELECT o.id, p.kind, p.tenant, count(*), b.now FROM picked AS p CROSS JOIN begun AS o CROSS JOIN bounds AS b GROUP BY o.id, p.kind, p.tenant, b.now
  RETURNING kind
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT b.now, CAST(:actor AS text), 'redrive.begin', o.id::text, CAST(:reason AS text),
    jsonb_build_object('jobs', s.total, 'chosen', CAST(CAST(:chosen AS text) AS jsonb), 'fingerprint', s.fingerprint)
  FROM begun AS o CROSS JOIN stamp AS s CROSS JOIN bounds AS b
  RETURNING id
)
SELECT s.total, s.fingerprint, b.until, coalesce(CAST(:deadline_at AS timestamptz) <= b.now, false) AS deadline_passed, EXISTS (SELECT 1 FROM begun) AS begun,
  EXISTS (SELECT 1 FROM {schema}.redrive_operations AS r WHERE r.id = CAST(:operation_id AS uuid)) AS has_begun_before,
  (SELECT count(*) FROM picked AS p WHERE p.confirmed > 0) AS with_confirmed, (SELECT count(*) FROM picked AS p WHERE p.uncertain > 0) AS with_uncertain,
  (SELECT count(*) FROM picked AS p WHERE p.pending > 0) AS with_pending,
  (SELECT count(*) FROM picked AS p WHERE p.refusal IS NULL AND p.set_left > 0) AS sets_unmet,
  (SELECT json_agg(r) FROM (SELECT p.refusal, count(*) AS jobs FROM picked AS p WHERE p.refusal IS NOT NULL GROUP BY p.refusal ORDER BY 1) AS r) AS refusals,
  (SELECT json_agg(g) FROM (SELECT p.kind, p.tenant, p.code, count(*) AS jobs FROM picked AS p GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 20) AS g)
    AS groups,
  (SELECT json_agg(x) FROM (SELECT p.id, p.kind, p.tenant, p.logical_key, p.state, p.code, p.attempt_count, p.confirmed, p.uncertain, p.pending, p.refusal,
      p.set_left, CASE WHEN p.set_left > 0 THEN p.set_stopped END AS set_stopped
    FROM picked AS p ORDER BY p.refusal IS NOT NULL, p.id LIMIT 10) AS x) AS sample
FROM stamp AS s CROSS JOIN bounds AS b
