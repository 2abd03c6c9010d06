-- Purpose: read what, beside its own rows, decides why one job does not run, and since when: the time, who works here or did last, what is paused,
--   the end of its last attempt, its place in its queue's line.
-- Transition: none
-- Parameters: job_id, queue, tenant, kind, version (the job's), live_s (how long ago a process's last sign may be), ahead_limit, members_shown (awaited jobs named)
-- Locks: none. Index: outbox_owed for the line, no further than ahead_limit; effects_open_of_job, joins_pkey, join_members_awaited and jobs_pkey for members that no look has counted yet, until ahead_limit are left, redrive_items_job, dead_letters_pkey, attempts_pkey. The processes and the pauses are read whole.
SELECT n.now, p.relays, p.consumers, p.able, p.keyed, p.relay_seen_at, p.able_seen_at,
  (SELECT a.ended_at FROM {schema}.attempts AS a WHERE a.job_id = CAST(:job_id AS uuid) ORDER BY a.number DESC LIMIT 1) AS attempt_ended_at,
  (SELECT count(*) FROM (  -- its own row comes first, so that a job without one has nobody counted
      SELECT m.order_key, m.job_id FROM {schema}.outbox AS m WHERE m.job_id = CAST(:job_id AS uuid) AND m.phase = 'owed' LIMIT 1
    ) AS mine CROSS JOIN LATERAL (
      SELECT 1 FROM {schema}.outbox AS o
      WHERE o.phase = 'owed' AND o.queue = CAST(:queue AS text) AND (o.order_key, o.job_id) < (mine.order_key, mine.job_id) AND o.due_at <= n.now
      ORDER BY o.order_key, o.job_id LIMIT CAST(:ahead_limit AS integer)
    ) AS ahead) AS ahead,
  ARRAY(SELECT e.name FROM {schema}.effects AS e WHERE e.job_id = CAST(:job_id AS uuid) AND e.state IN ('pending', 'uncertain') ORDER BY e.job_id, e.name LIMIT 20)
    AS open_effects,
  (SELECT CAST(jsonb_build_object('until', s.condition, 'members', s.members, 'left', c.awaited, 'stopped', c.stopped,
      'stopped_at', c.stopped_at, 'shown', coalesce(c.shown, '[]')) AS text)
    FROM {schema}.joins AS s CROSS JOIN LATERAL (
      SELECT count(*) AS awaited, count(*) FILTER (WHERE l.stopped) AS stopped, min(l.finished_at) FILTER (WHERE l.stopped) AS stopped_at,
        jsonb_agg(jsonb_build_object('job_id', l.job_id, 'kind', l.kind, 'logical_key', l.logical_key, 'state', l.state, 'stopped', l.stopped)
          ORDER BY l.place) FILTER (WHERE l.place <= CAST(:members_shown AS integer)) AS shown
      FROM (
        SELECT a.*, row_number() OVER (ORDER BY a.stopped DESC, a.job_id) AS place
        FROM (
          SELECT m.job_id, j.kind, j.logical_key, j.state, j.finished_at,
            s.condition = 'succeeded' AND (j.state IS NULL OR j.finished_at IS NOT NULL) AS stopped
          FROM {schema}.join_members AS m
          LEFT JOIN LATERAL (
            SELECT k.kind, k.logical_key, k.state, k.finished_at FROM {schema}.jobs AS k WHERE k.id = m.job_id
            LIMIT 1  -- keeps the planner to one index probe per member
          ) AS j ON true
          -- Who has ended as asked is left no more, even where the look that counts it is still to come.
          WHERE m.join_id = s.job_id AND m.seen IS NULL
            AND NOT CASE WHEN s.condition = 'succeeded' THEN j.state IS NOT DISTINCT FROM 'succeeded' ELSE j.state IS NULL OR j.finished_at IS NOT NULL END
          ORDER BY m.job_id LIMIT CAST(:ahead_limit AS integer)
        ) AS a
      ) AS l
    ) AS c
    WHERE s.job_id = CAST(:job_id AS uuid) AND s.closed_at IS NULL) AS awaited,
  (SELECT jsonb_build_array(r.id, r.state, r.created_at)::text FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
      JOIN {schema}.jobs AS s ON s.id = i.job_id
    WHERE i.job_id = CAST(:job_id AS uuid) AND {waits_for_redrive} ORDER BY r.id DESC LIMIT 1) AS redrive,
  (SELECT jsonb_build_array(d.discarded_by, d.discard_reason, d.discarded_at)::text FROM {schema}.dead_letters AS d WHERE d.job_id = CAST(:job_id AS uuid) AND d.discarded_at IS NOT NULL)
    AS discarded,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('scope', s.scope, 'name', s.name, 'by', s.actor, 'reason', s.reason, 'since', s.at)
      ORDER BY array_position(ARRAY['everything', 'queue', 'kind', 'tenant'], s.scope)), '[]')::text
    FROM {schema}.pauses AS s WHERE s.resumed_at IS NULL AND s.name = CASE s.scope WHEN 'queue' THEN CAST(:queue AS text)
      WHEN 'kind' THEN CAST(:kind AS text) WHEN 'tenant' THEN CAST(:tenant AS text) ELSE '' END) AS pauses
FROM (SELECT {schema}.clock() AS now) AS n, LATERAL (
  SELECT count(*) FILTER (WHERE s.role = 'relay' AND s.live) AS relays, count(*) FILTER (WHERE s.role = 'consumer' AND s.live) AS consumers,
    count(*) FILTER (WHERE s.able AND s.live) AS able, count(*) FILTER (WHERE s.able AND s.live AND s.keyed) AS keyed,
    max(s.seen_at) FILTER (WHERE s.role = 'relay') AS relay_seen_at, max(s.seen_at) FILTER (WHERE s.able) AS able_seen_at
  FROM (
    SELECT x.role, x.seen_at, (SELECT o.needs_key FROM {schema}.outbox AS o WHERE o.job_id = CAST(:job_id AS uuid)) = ANY (x.key_ids) AS keyed,
      x.seen_at > n.now - make_interval(secs => CAST(:live_s AS float8)) AS live,
      x.role = 'consumer' AND CAST(:queue AS text) = ANY (x.works_for) AND EXISTS (
        SELECT 1 FROM unnest(x.kinds, x.versions) AS a(kind, version)
        WHERE a.kind = CAST(:kind AS text) AND a.version = CAST(:version AS integer)) AS able
    FROM {schema}.processes AS x) AS s
) AS p
