-- Purpose: count, per queue and per tenant that has a bound of its own, what is due, scheduled and running, and read what is known of its rates, whether all of it is paused
--   or may not run at all, and what its limits let start in a second. Bounded:
--   of each queue no more than so many rows are read, so a count may say "at least".
-- Transition: none
-- Parameters: most (due rows read of a queue, or one more than its highest bound), few (other rows read of one; of those that are out, or one more than its highest bound), sample (leases of one looked at for lateness); since, since_id (jobs created
--   after these count as submitted lately, no more than few of all queues); live_s (how long ago a consumer's sign may be); aside_at (the
--   place out of the line)
-- Locks: none. Index: outbox_owed, outbox_owed_low and outbox_released, one probe per distinct queue and then no further than the limits, and so outbox_leases;
--   jobs_pkey, and those of the limits. Each limit has an order, or the planner would read the table from its start.
WITH RECURSIVE now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), paused AS MATERIALIZED (
  SELECT {paused_queues}, {paused_names}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), owed(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'owed' ORDER BY o.queue, o.order_key, o.job_id LIMIT 1)
  UNION ALL
  SELECT m.queue FROM owed AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue > k.queue ORDER BY o.queue, o.order_key, o.job_id LIMIT 1
  ) AS m
), released(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'released' ORDER BY o.queue, o.released_at LIMIT 1)
  UNION ALL
  SELECT m.queue FROM released AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'released' AND o.queue > k.queue ORDER BY o.queue, o.released_at LIMIT 1
  ) AS m
), leasing(queue) AS (
  (SELECT o.queue FROM {schema}.outbox AS o WHERE o.phase = 'leased' ORDER BY o.queue DESC, o.due_at DESC LIMIT 1)
  UNION ALL
  SELECT m.queue FROM leasing AS k CROSS JOIN LATERAL (
    SELECT o.queue FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue < k.queue ORDER BY o.queue DESC, o.due_at DESC LIMIT 1
  ) AS m
), leased AS MATERIALIZED (
  SELECT k.queue, l.running FROM leasing AS k CROSS JOIN LATERAL (
    SELECT count(*) AS running FROM (
      SELECT 1 FROM {schema}.outbox AS o WHERE o.phase = 'leased' AND o.queue = k.queue ORDER BY o.due_at LIMIT CAST(:most AS integer)
    ) AS r
  ) AS l
), late AS MATERIALIZED (
  SELECT j.queue, avg(x.late_s) AS mean_s, max(x.late_s) AS max_s, avg(x.release_s) AS release_s, avg(x.claim_s) AS claim_s
  FROM leasing AS k CROSS JOIN LATERAL (
    SELECT o.job_id, o.released_at FROM {schema}.outbox AS o
    WHERE o.phase = 'leased' AND o.queue = k.queue ORDER BY o.due_at DESC LIMIT CAST(:sample AS integer)
  ) AS l
  JOIN {schema}.jobs AS j ON j.id = l.job_id AND j.state = 'running' AND isfinite(j.lease_started_at)
  CROSS JOIN LATERAL (SELECT {due_since} AS due_at OFFSET 0) AS u
  CROSS JOIN LATERAL (SELECT greatest(CAST(extract(epoch FROM j.lease_started_at - u.due_at) AS float8), 0) AS late_s,
    greatest(CAST(extract(epoch FROM l.released_at - greatest(u.due_at, j.created_at)) AS float8), 0) AS release_s,
    greatest(CAST(extract(epoch FROM j.lease_started_at - l.released_at) AS float8), 0) AS claim_s) AS x
  GROUP BY j.queue
), submitted AS MATERIALIZED (
  SELECT r.queue, count(*) AS jobs FROM (
    SELECT j.queue, j.created_at FROM {schema}.jobs AS j WHERE j.id > CAST(:since_id AS uuid) ORDER BY j.id DESC LIMIT CAST(:few AS integer)
  ) AS r WHERE r.created_at > CAST(:since AS timestamptz) GROUP BY r.queue
), ended AS MATERIALIZED (
  SELECT e.key AS queue, sum(CAST(e.value AS float8)) AS per_s
  FROM {schema}.processes AS p CROSS JOIN now AS n CROSS JOIN LATERAL jsonb_each_text(p.ended_per_s) AS e
  WHERE p.seen_at > n.instant - make_interval(secs => CAST(:live_s AS float8))
  GROUP BY e.key
), bounded AS MATERIALIZED (
  SELECT b.queue, max(b.max_backlog) + 1 AS enough, array_agg(b.tenant) FILTER (WHERE b.tenant <> '') AS tenants
  FROM {schema}.queue_bounds AS b GROUP BY b.queue
), line AS MATERIALIZED (
  SELECT k.queue, b.tenants, greatest(CAST(:most AS integer), b.enough) AS most FROM owed AS k LEFT JOIN bounded AS b ON b.queue = k.queue
), due AS MATERIALIZED (
  SELECT k.queue, p.tenant, sum(p.jobs) AS jobs, min(p.oldest) AS oldest, min(p.oldest) FILTER (WHERE p.in_line) AS oldest_in_line, sum(p.looked) AS looked
  FROM line AS k CROSS JOIN now AS n CROSS JOIN LATERAL (
    -- What is owed for later though it has been due, since its hint came to nothing, is ready as well; one that was too early is not.
    SELECT CASE WHEN d.tenant = ANY (k.tenants) THEN d.tenant END AS tenant,
      count(*) FILTER (WHERE d.due_at <= n.instant OR coalesce(d.last_error <> 'not due', false)) AS jobs,
      min(d.due_at) FILTER (WHERE d.due_at <= n.instant) AS oldest, count(*) AS looked, true AS in_line
    FROM (
      SELECT o.tenant, o.due_at, o.last_error FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key <= n.instant
      ORDER BY o.order_key, o.job_id LIMIT k.most
    ) AS d GROUP BY 1
    UNION ALL
    SELECT CASE WHEN d.tenant = ANY (k.tenants) THEN d.tenant END, count(*) FILTER (WHERE d.due_at <= n.instant),
      min(d.due_at) FILTER (WHERE d.due_at <= n.instant), count(*), true
    FROM (
      SELECT o.tenant, o.due_at FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key > o.due_at AND o.order_key > n.instant
        AND o.order_key < CAST(:aside_at AS timestamptz)
      ORDER BY o.order_key LIMIT k.most
    ) AS d GROUP BY 1
    UNION ALL
    -- What waits for its concurrency key stands far behind its place, and is due.
    SELECT CASE WHEN d.tenant = ANY (k.tenants) THEN d.tenant END, count(*), min(d.due_at), count(*), false
    FROM (
      SELECT o.tenant, least(o.due_at - {key_aside_for}, n.instant) AS due_at FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key > {key_aside_from} AND o.order_key < CAST(:aside_at AS timestamptz)
        AND o.last_error = 'waits for its key'
      ORDER BY o.order_key, o.job_id LIMIT k.most
    ) AS d GROUP BY 1
    UNION ALL
    -- What is set aside for a pause of its tenant or kind. Since when it has been due its row doesn't tell.
    SELECT CASE WHEN d.tenant = ANY (k.tenants) THEN d.tenant END, count(*), CAST(NULL AS timestamptz), count(*), false
    FROM (
      SELECT o.tenant FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key = CAST(:aside_at AS timestamptz) AND o.last_error = 'paused'
      ORDER BY o.order_key, o.job_id LIMIT k.most
    ) AS d GROUP BY 1
  ) AS p
  GROUP BY k.queue, p.tenant
), out AS MATERIALIZED (
  SELECT k.queue, p.tenant, p.jobs, k.most FROM (
    SELECT r.queue, b.tenants, greatest(CAST(:few AS integer), b.enough) AS most FROM released AS r LEFT JOIN bounded AS b ON b.queue = r.queue
  ) AS k CROSS JOIN LATERAL (
    SELECT CASE WHEN d.tenant = ANY (k.tenants) THEN d.tenant END AS tenant, count(*) AS jobs FROM (
      SELECT o.tenant FROM {schema}.outbox AS o
      WHERE o.phase = 'released' AND o.queue = k.queue ORDER BY o.released_at LIMIT k.most
    ) AS d GROUP BY 1
  ) AS p
), full_out(queue) AS (
  SELECT u.queue FROM out AS u GROUP BY u.queue HAVING sum(u.jobs) >= min(u.most)
), unclaimed AS MATERIALIZED (
  -- Of those whose hints have been out for longest. What one has waited before may have been for its key, for the end of a pause, or for somebody who can run
  -- it; only what nobody took has been in line since it was due.
  SELECT k.queue, p.tenant, p.since FROM released AS k CROSS JOIN now AS n LEFT JOIN bounded AS b ON b.queue = k.queue CROSS JOIN LATERAL (
    SELECT CASE WHEN o.tenant = ANY (b.tenants) THEN o.tenant END AS tenant,
      min(least(CASE WHEN o.limit_key IS NOT NULL OR coalesce(o.last_error <> 'hint lost', true) THEN o.released_at ELSE j.due_at END, n.instant)) AS since
    FROM (
      SELECT o.job_id, o.tenant, o.limit_key, o.last_error, o.released_at FROM {schema}.outbox AS o
      WHERE o.phase = 'released' AND o.queue = k.queue ORDER BY o.released_at LIMIT 5
    ) AS o CROSS JOIN LATERAL (SELECT CASE WHEN isfinite(j.run_at) THEN {due_since} END AS due_at FROM {schema}.jobs AS j WHERE j.id = o.job_id LIMIT 1) AS j
    GROUP BY 1
  ) AS p
), known(queue) AS (
  SELECT k.queue FROM owed AS k UNION SELECT k.queue FROM released AS k UNION SELECT l.queue FROM leased AS l
  UNION SELECT s.queue FROM submitted AS s UNION SELECT e.queue FROM ended AS e WHERE e.per_s > 0
)
SELECT k.queue, '' AS tenant,
  coalesce((SELECT sum(d.jobs) FROM due AS d WHERE d.queue = k.queue), 0) + coalesce((SELECT sum(u.jobs) FROM out AS u WHERE u.queue = k.queue), 0)
    AS backlog,
  coalesce((SELECT sum(d.looked) FROM due AS d WHERE d.queue = k.queue) >= m.most, false) OR k.queue IN (SELECT o.queue FROM full_out AS o) AS capped,
  (SELECT count(*) FROM (
    SELECT o.due_at FROM {schema}.outbox AS o
    WHERE o.phase = 'owed' AND o.queue = k.queue AND o.order_key > n.instant AND o.order_key < {key_aside_from}
    ORDER BY o.order_key LIMIT CAST(:few AS integer)
  ) AS s WHERE s.due_at > n.instant) AS scheduled,
  coalesce(l.running, 0) AS running,
  CAST(extract(epoch FROM n.instant - least((SELECT min(d.oldest) FROM due AS d WHERE d.queue = k.queue), c.since)) AS float8) AS oldest_due_s,
  coalesce(least((SELECT min(d.oldest_in_line) FROM due AS d WHERE d.queue = k.queue), c.since), n.instant) AS line_due_since,
  coalesce(s.jobs, 0) AS submitted, e.per_s AS out_per_s, t.mean_s AS late_mean_s, t.max_s AS late_max_s, t.release_s AS release_mean_s,
  t.claim_s AS claim_mean_s, f.in_per_s AS in_before,
  z.everything OR k.queue = ANY (z.queues) OR coalesce(g.max_running = 0, false) AS still,
  g.rate_per_s, g.burst, CAST(NULL AS float8) AS tenant_rate_per_s, CAST(NULL AS integer) AS tenant_burst
FROM known AS k CROSS JOIN now AS n CROSS JOIN paused AS z
LEFT JOIN line AS m ON m.queue = k.queue
LEFT JOIN leased AS l ON l.queue = k.queue
LEFT JOIN (SELECT u.queue, min(u.since) AS since FROM unclaimed AS u GROUP BY u.queue) AS c ON c.queue = k.queue
LEFT JOIN late AS t ON t.queue = k.queue
LEFT JOIN submitted AS s ON s.queue = k.queue
LEFT JOIN ended AS e ON e.queue = k.queue
LEFT JOIN {schema}.queue_limits AS g ON g.name = k.queue
LEFT JOIN {schema}.queue_figures AS f ON f.queue = k.queue AND f.tenant = ''
UNION ALL
SELECT b.queue, b.tenant, coalesce(d.jobs, 0) + coalesce(u.jobs, 0), coalesce((SELECT sum(x.looked) FROM due AS x WHERE x.queue = b.queue) >= m.most, false) OR b.queue IN (SELECT o.queue FROM full_out AS o), 0, 0,
  CAST(extract(epoch FROM n.instant - least(d.oldest, c.since)) AS float8), coalesce(least(d.oldest_in_line, c.since), n.instant), 0, NULL, NULL, NULL, NULL, NULL, NULL,
  z.everything OR b.queue = ANY (z.queues) OR b.tenant = ANY (z.tenants)
    OR coalesce(g.max_running = 0, false) OR coalesce(t.max_running = 0, false),
  g.rate_per_s, g.burst, coalesce(t.rate_per_s, g.tenant_rate_per_s), CASE WHEN t.rate_per_s IS NULL THEN g.tenant_burst ELSE t.burst END
FROM {schema}.queue_bounds AS b CROSS JOIN now AS n CROSS JOIN paused AS z
LEFT JOIN line AS m ON m.queue = b.queue
LEFT JOIN {schema}.queue_limits AS g ON g.name = b.queue
LEFT JOIN {schema}.tenant_limits AS t ON t.queue = b.queue AND t.name = b.tenant
LEFT JOIN due AS d ON d.queue = b.queue AND d.tenant = b.tenant
LEFT JOIN out AS u ON u.queue = b.queue AND u.tenant = b.tenant
LEFT JOIN unclaimed AS c ON c.queue = b.queue AND c.tenant = b.tenant
WHERE b.tenant <> '' AND (d.jobs > 0 OR u.jobs > 0)
