-- Purpose: end waiting jobs in whose place a newer one of their subject has come, as a cancel does, with the newer one's id. One with an effect of which
--   nobody knows whether it has happened goes on, since only its own next attempt finds that out. The job's own row tells all of it; the audit is of what
--   people do, and would grow with every submission. If asked, the newer one takes over the time of those that it ends, the earliest with their place in line
--   and in the order of its concurrency key: else a stream of newer ones, each the last in line, would keep the work from ever being done.
-- Transition: supersede: ready -> cancelled (outbox row deleted)
-- Parameters: jobs (JSON text: pairs of a job and the newer one), takes (which of its own time and theirs the newer one gets: earliest | latest; empty: its
--   own), aside_at (what is due from then on is held or set aside, and has no time), actor, reason (to which the newer one's id is added)
-- Locks: the outbox rows in id order, which enqueue_subjects.sql holds already, so that this one's snapshot shows all that was written before; then the
--   job rows. The newer ones are this transaction's own. Index: the primary keys of all tables.
WITH asked AS MATERIALIZED (
  SELECT CAST(a.value ->> 0 AS uuid) AS job_id, CAST(a.value ->> 1 AS uuid) AS newer FROM jsonb_array_elements(CAST(CAST(:jobs AS text) AS jsonb)) AS a(value)
), gone AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT a.job_id FROM asked AS a)) AND coalesce(o.phase IN ('owed', 'released'), false)
    AND (SELECT j.state = 'ready' FROM {schema}.jobs AS j WHERE j.id = o.job_id)
    AND (SELECT true FROM {schema}.effects AS e WHERE e.job_id = o.job_id AND e.state IN ('pending', 'uncertain') LIMIT 1) IS NULL
  RETURNING o.job_id, {schema}.clock() AS now
), superseded AS (
  UPDATE {schema}.jobs AS j
  SET state = 'cancelled', finished_at = g.now, cancel_requested_at = g.now, cancel_requested_by = CAST(:actor AS text),
    cancel_reason = CAST(:reason AS text) || ' ' || (SELECT a.newer FROM asked AS a WHERE a.job_id = g.job_id LIMIT 1),
    cancelled_after = jsonb_build_object(
      {happened},
      'superseded_by', (SELECT a.newer FROM asked AS a WHERE a.job_id = g.job_id LIMIT 1))
  FROM gone AS g
  WHERE j.id = g.job_id AND j.state = 'ready'
  RETURNING j.id, CAST(j.cancelled_after ->> 'superseded_by' AS uuid) AS newer, j.tenant, j.run_at, j.limit_group, j.limit_key, j.limit_place
), taken AS MATERIALIZED (
  SELECT s.newer, min(s.run_at) FILTER (WHERE s.run_at < CAST(:aside_at AS timestamptz)) AS first_at,
    max(s.run_at) FILTER (WHERE s.run_at < CAST(:aside_at AS timestamptz)) AS last_at
  FROM superseded AS s WHERE CAST(:takes AS text) <> '' GROUP BY s.newer
), heirs AS (
  UPDATE {schema}.jobs AS j
  SET run_at = CASE
      WHEN j.run_at >= CAST(:aside_at AS timestamptz) THEN j.run_at
      WHEN CAST(:takes AS text) = 'earliest' THEN least(j.run_at, t.first_at)
      WHEN t.last_at >= j.deadline_at THEN j.run_at ELSE greatest(j.run_at, t.last_at) END,
    limit_place = CASE WHEN j.limit_place IS NOT NULL AND CAST(:takes AS text) = 'earliest' THEN least(j.limit_place, (
        SELECT min(s.limit_place) FROM superseded AS s
        WHERE s.newer = j.id AND s.tenant = j.tenant AND s.limit_group = j.limit_group AND s.limit_key = j.limit_key))
      ELSE j.limit_place END
  FROM taken AS t
  WHERE j.id = t.newer AND j.id = ANY (ARRAY(SELECT q.newer FROM taken AS q))
  RETURNING j.id, j.run_at, j.priority, j.limit_place
), moved AS (
  UPDATE {schema}.outbox AS o
  SET limit_place = h.limit_place,
    due_at = CASE WHEN o.due_at >= CAST(:aside_at AS timestamptz) THEN o.due_at ELSE h.run_at END,
    order_key = CASE WHEN o.due_at >= CAST(:aside_at AS timestamptz) THEN o.order_key ELSE h.run_at - h.priority * interval '1 minute' END
  FROM heirs AS h
  WHERE o.job_id = h.id AND o.job_id = ANY (ARRAY(SELECT q.id FROM heirs AS q))
)
SELECT s.id AS job_id, s.newer FROM superseded AS s ORDER BY s.id
