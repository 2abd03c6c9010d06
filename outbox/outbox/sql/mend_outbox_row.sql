-- Purpose: write outbox rows anew from their jobs, which are the book of record. A lease whose row was wrong ends at once, so that its attempt is taken
--   back in the usual way, unless its worker is alive and beats or finishes before; a hint whose row was wrong goes out again.
-- Transition: none (the phase is brought back to what the job's state says)
-- Parameters: job_ids, code (the check's), actor, reason
-- Locks: outbox rows in id order, SKIP LOCKED; then their job rows, SKIP LOCKED. Index: both primary keys.
WITH held AS MATERIALIZED (
  -- As each row is under its lock: a claim or an end that came just before has made a sound one of it.
  SELECT o.job_id, o.phase, o.queue, o.tenant, o.order_key, o.due_at, o.deadline_at, o.released_at, o.lease_token, o.lease_expires_at, o.subject,
    o.limit_group, o.limit_key, o.limit_max, o.limit_place
  FROM {schema}.outbox AS o WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), told AS MATERIALIZED (
  SELECT j.id, j.state, j.queue, j.tenant, j.priority, j.run_at, j.deadline_at, j.lease_token, j.kind || ':' || j.subject AS subject,
    j.limit_group, j.limit_key, j.limit_max, j.limit_place
  FROM {schema}.jobs AS j
  WHERE j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND j.state IN ('ready', 'running')
  ORDER BY j.id FOR UPDATE SKIP LOCKED
), wrong AS MATERIALIZED (
  SELECT t.id, t.state, t.queue, t.tenant, t.priority, t.run_at, t.deadline_at, t.lease_token, t.subject,
    t.limit_group, t.limit_key, t.limit_max, t.limit_place, n.now
  FROM told AS t JOIN held AS o ON o.job_id = t.id, (SELECT {schema}.clock() AS now) AS n
  WHERE (t.state = 'running') <> (o.phase = 'leased') OR o.lease_token IS DISTINCT FROM t.lease_token
    OR o.queue <> t.queue OR o.tenant <> t.tenant OR o.deadline_at IS DISTINCT FROM t.deadline_at OR o.subject IS DISTINCT FROM t.subject
    OR (o.limit_group, o.limit_key, o.limit_max, o.limit_place) IS DISTINCT FROM (t.limit_group, t.limit_key, t.limit_max, t.limit_place)
    OR (o.phase = 'owed' AND (o.due_at < t.run_at OR o.order_key > greatest(o.due_at, n.now) + interval '101 minutes'))
    OR o.due_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z' OR o.order_key NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z'
    OR coalesce(o.released_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z', false)
    OR coalesce(o.lease_expires_at NOT BETWEEN '1960-01-01Z' AND '9999-01-01Z', false)
), mended AS (
  UPDATE {schema}.outbox AS o
  SET phase = CASE w.state WHEN 'running' THEN 'leased' ELSE 'owed' END, queue = w.queue, tenant = w.tenant, deadline_at = w.deadline_at, subject = w.subject,
    limit_group = w.limit_group, limit_key = w.limit_key, limit_max = w.limit_max, limit_place = w.limit_place,
    order_key = w.run_at - w.priority * interval '1 minute', due_at = CASE w.state WHEN 'running' THEN w.now ELSE greatest(w.run_at, w.now) END,
    released_at = CASE WHEN o.released_at BETWEEN '1960-01-01Z' AND '9999-01-01Z' THEN o.released_at END,
    lease_token = w.lease_token, lease_expires_at = CASE w.state WHEN 'running' THEN w.now END, last_error = 'the row was mended'
  FROM wrong AS w
  WHERE o.job_id = w.id AND o.job_id = ANY (ARRAY(SELECT v.id FROM wrong AS v))
  RETURNING o.job_id
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT {schema}.clock(), CAST(:actor AS text), 'doctor.mend', m.job_id::text, CAST(:reason AS text), jsonb_build_object('check', CAST(:code AS text))
  FROM mended AS m
  RETURNING id
)
SELECT m.job_id FROM mended AS m
