-- Purpose: give one lease each on the named jobs that may run here now: released, ready, due, of a kind and version named by the caller, and not
--   known to be sealed under a key that he doesn't have.
-- Transition: claim: ready -> running (phase released -> leased)
-- Parameters: job_ids; queues (those that the caller works for, or NULL for all); kinds, versions, leases_s, max_attempts, handler_versions, max_ages_s
--   (one row per kind and version); key_ids; owner, host, worker_version; timed (whether to tell how long each waited for its hint, and with it)
-- Locks: outbox rows in id order, SKIP LOCKED, then their job rows. due_at tells due_leases when to look at the lease: it must be set here.
-- Index: both primary keys, and attempts_pkey for jobs that were tried before; arrays from sub-selects keep the planner to nested loops whatever the tables' sizes, and coalesce keeps it
--   from outbox_released, where it would walk everybody's hints, dead ones included. The outbox rows meet what was claimed by an array of
--   one: no hash or merge join can do that, and such a join turns into a walk through the whole table when statistics stem from a moment
--   in which it was empty. When a hint went out is found by its place in an array, too. The limit leaves nothing out; the planner, which can't know it, expects a row or so, and probes for each.
WITH able AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[]), CAST(:leases_s AS float8[]),
    CAST(:max_attempts AS integer[]), CAST(:handler_versions AS text[]), CAST(:max_ages_s AS integer[]))
    AS a(kind, version, lease_s, max_attempts, handler_version, max_age_s)
), hinted AS MATERIALIZED (
  SELECT o.job_id, o.released_at FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT unnest(CAST(:job_ids AS uuid[])))) AND coalesce(o.phase = 'released', false)
    AND (CAST(:queues AS text[]) IS NULL OR o.queue = ANY (CAST(:queues AS text[])))
    AND (o.needs_key IS NULL OR o.needs_key = ANY (CAST(:key_ids AS text[])))
  ORDER BY o.job_id FOR UPDATE SKIP LOCKED
), hints AS MATERIALIZED (
  SELECT array_agg(h.job_id ORDER BY h.job_id) AS ids, array_agg(h.released_at ORDER BY h.job_id) AS instants FROM hinted AS h
), claimed AS (
  UPDATE {schema}.jobs AS j
  SET state = 'running', attempt_count = j.attempt_count + 1, max_attempts = coalesce(j.max_attempts, a.max_attempts),
    max_age_s = a.max_age_s,
    lease_token = gen_random_uuid(), lease_owner = :owner, lease_host = :host, lease_worker_version = :worker_version,
    lease_handler_version = a.handler_version, lease_started_at = n.now
  FROM able AS a, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = ANY (ARRAY(SELECT h.job_id FROM hinted AS h))
    AND j.state = 'ready' AND j.run_at <= n.now AND (j.deadline_at IS NULL OR j.deadline_at > n.now)
    AND j.kind = a.kind AND j.version = a.version
  RETURNING j.id, j.tenant, j.kind, j.logical_key, j.version, j.queue, j.attempt_count, j.uncharged_attempts, j.max_attempts,
    j.lease_token, j.lease_started_at, j.run_at, j.deadline_at, j.created_at, j.correlation_id, j.budget_start, j.payload, a.lease_s, j.trace_context
), leased AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'leased', released_by = NULL, release_count = 0, last_error = NULL, progress = NULL, needs_key = NULL, lease_token = c.lease_token,
    lease_expires_at = c.lease_started_at + make_interval(secs => c.lease_s), due_at = c.lease_started_at + make_interval(secs => c.lease_s)
  FROM (SELECT d.id, d.lease_token, d.lease_started_at, d.lease_s FROM claimed AS d LIMIT (SELECT cardinality(CAST(:job_ids AS uuid[])))) AS c
  WHERE o.job_id = ANY (ARRAY[c.id])
)
SELECT c.id, c.lease_token, c.lease_s, c.tenant, c.kind, c.logical_key, c.version, c.queue, c.attempt_count,
  c.attempt_count - c.uncharged_attempts AS charged, c.max_attempts, c.run_at, c.deadline_at, c.created_at, c.correlation_id,
  c.budget_start, CAST(extract(epoch FROM c.deadline_at - c.lease_started_at) AS float8) AS deadline_s,
  c.payload::text AS payload_text,
  CASE WHEN c.attempt_count - 1 > c.budget_start THEN (
    SELECT CAST(extract(epoch FROM c.lease_started_at - min(a.claimed_at)) AS float8) FROM {schema}.attempts AS a
    WHERE a.job_id = c.id AND a.number > c.budget_start AND a.outcome <> 'handed_back' AND isfinite(a.claimed_at)) END AS age_s,
  CASE WHEN jsonb_typeof(c.trace_context) = 'object' THEN
    (c.trace_context || jsonb_build_object('age_s', extract(epoch FROM c.lease_started_at - c.created_at)))::text END AS trace_text,
  CAST(extract(epoch FROM r.released_at - r.due_at) AS float8) AS release_s,
  CAST(extract(epoch FROM c.lease_started_at - r.released_at) AS float8) AS claim_s
FROM claimed AS c LEFT JOIN LATERAL (
  -- What an attempt before took is no waiting.
  SELECT h.instants[width_bucket(c.id, h.ids)] AS released_at, greatest(c.created_at, {due_since}) AS due_at
  FROM hints AS h, (SELECT c.id, c.run_at, c.attempt_count, CAST('running' AS text) AS state) AS j WHERE CAST(:timed AS boolean)
) AS r ON true
