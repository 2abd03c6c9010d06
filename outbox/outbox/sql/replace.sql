-- Purpose: give waiting jobs of which no attempt has begun other arguments, another time to start, or both. One that begins or ends meanwhile stays as it
--   is. Where its time moves, or its hint is out, the hint is owed anew, at the place of its own time and priority; what is held or set aside, beyond
--   `aside_at`, stays where it is. Options of the first submission stay.
-- Transition: none (phase released -> owed)
-- Parameters: jobs (JSON text: objects with job_id, digest (hexadecimal, of what is replaced), and version, new_digest, payload (JSON text), subject and
--   limit_group, limit_key, limit_max, limit_rule, or null: the arguments stay; run_at asked for, null: now), latest (false: the earlier of both times counts), aside_at
-- Locks: outbox rows in id order, waiting for a release, a claim or a cancel to commit; then the job rows. Conditions on both are asked again of what was
--   waited for. Index: both primary keys, join_members_job.
WITH level AS MATERIALIZED (
  SELECT current_setting('transaction_isolation') AS isolation
), asked AS MATERIALIZED (
  SELECT a.job_id, a.digest, a.version, a.new_digest, a.payload, a.subject, a.limit_group, a.limit_key, a.limit_max, a.limit_rule, coalesce(a.run_at, {schema}.clock()) AS at
  FROM jsonb_to_recordset(CAST(CAST(:jobs AS text) AS jsonb))
    AS a(job_id uuid, digest text, version integer, new_digest text, payload text, subject text, limit_group text, limit_key text, limit_max integer, limit_rule text,
      run_at timestamptz)
  WHERE (SELECT l.isolation IN ('read committed', 'read uncommitted') FROM level AS l)
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT a.job_id FROM asked AS a)) AND coalesce(o.phase IN ('owed', 'released'), false)
  ORDER BY o.job_id FOR UPDATE
), replaced AS (
  UPDATE {schema}.jobs AS j
  SET version = coalesce(a.version, j.version), payload_digest = coalesce(decode(a.new_digest, 'hex'), j.payload_digest),
    payload = coalesce(a.payload::jsonb, j.payload), subject = CASE WHEN a.payload IS NULL THEN j.subject ELSE a.subject END,
    limit_group = CASE WHEN a.payload IS NULL THEN j.limit_group ELSE a.limit_group END,
    limit_key = CASE WHEN a.payload IS NULL THEN j.limit_key ELSE a.limit_key END,
    limit_max = CASE WHEN a.payload IS NULL THEN j.limit_max ELSE a.limit_max END,
    limit_blocks = CASE WHEN a.payload IS NULL THEN j.limit_blocks ELSE nullif(a.limit_rule = 'b', false) END,
    -- A job keeps its place among those of its key. In another one it is the last, but for those that await it, by however many sets: behind one of them
    -- it would wait for ever, whichever keys lie in between, as waiting goes by falling places only.
    limit_place = CASE WHEN a.payload IS NULL THEN j.limit_place WHEN a.limit_rule IS NULL THEN NULL
      WHEN j.limit_place IS NOT NULL AND (j.limit_group, j.limit_key) = (a.limit_group, a.limit_key) THEN j.limit_place
      ELSE least({schema}.next_limit_place(), (
        WITH RECURSIVE awaiting AS (
          SELECT m.join_id, 1 AS depth FROM {schema}.join_members AS m WHERE m.job_id = j.id AND m.seen IS NULL
          UNION
          SELECT m.join_id, w.depth + 1 FROM awaiting AS w JOIN {schema}.join_members AS m ON m.job_id = w.join_id AND m.seen IS NULL WHERE w.depth < 100
        )
        SELECT min(q.limit_place - w.depth) FROM awaiting AS w JOIN {schema}.outbox AS q ON q.job_id = w.join_id)) END,
    run_at = CASE
      WHEN j.run_at >= CAST(:aside_at AS timestamptz) OR a.at >= j.deadline_at THEN j.run_at
      WHEN CAST(:latest AS boolean) THEN greatest(j.run_at, a.at) ELSE least(j.run_at, a.at) END
  FROM asked AS a
  WHERE j.id = a.job_id AND j.id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
    AND j.state = 'ready' AND j.attempt_count = 0 AND j.payload_digest = decode(a.digest, 'hex')
    -- Without other arguments nothing is written unless the time moves.
    AND (a.payload IS NOT NULL OR CASE WHEN CAST(:latest AS boolean) THEN a.at > j.run_at AND coalesce(a.at < j.deadline_at, true)
      ELSE a.at < j.run_at AND j.run_at < CAST(:aside_at AS timestamptz) END)
  RETURNING j.id, j.kind, j.subject, j.run_at, j.priority, a.payload IS NOT NULL AS has_new,
    j.limit_group, j.limit_key, j.limit_max, j.limit_place
), owed AS (
  UPDATE {schema}.outbox AS o
  SET phase = 'owed', released_by = NULL, release_count = CASE o.phase WHEN 'released' THEN greatest(o.release_count - 1, 0) ELSE o.release_count END,
    subject = r.kind || ':' || r.subject, needs_key = CASE WHEN r.has_new THEN NULL ELSE o.needs_key END,
    limit_group = r.limit_group, limit_key = r.limit_key, limit_max = r.limit_max, limit_place = r.limit_place,
    -- Neither aside nor next of its key any more.
    last_error = CASE WHEN o.last_error IN ('waits for its key', 'next of its key') THEN NULL ELSE o.last_error END,
    due_at = CASE WHEN o.due_at >= CAST(:aside_at AS timestamptz) THEN o.due_at ELSE r.run_at END,
    order_key = CASE WHEN o.due_at >= CAST(:aside_at AS timestamptz) THEN o.order_key ELSE r.run_at - r.priority * interval '1 minute' END
  FROM replaced AS r
  WHERE o.job_id = r.id AND o.job_id = ANY (ARRAY(SELECT q.id FROM replaced AS q))
  RETURNING o.job_id
), woken AS (  -- a relay that sleeps until the time that was; the trigger is each statement's
  INSERT INTO {schema}.outbox (job_id, queue, tenant, order_key, due_at) SELECT NULL, NULL, NULL, NULL, NULL WHERE false
)
SELECT l.isolation, r.id AS job_id FROM level AS l LEFT JOIN replaced AS r ON true
