-- Purpose: look through a piece of what is set aside in a queue, and put back in line what no pause holds any more, at the place of the job's own
--   time and priority, due as soon as it may run.
-- Transition: none
-- Parameters: queue, after (the job behind which the piece begins), window (rows looked at), aside_at (the place out of the line)
-- Locks: outbox rows in id order, SKIP LOCKED; what somebody holds is counted as left. Index: outbox_owed, from that place on; primary key of jobs for
--   each row that is put back, or where a kind is paused. One row: looked (rows), last_id (of them), moved, skipped.
WITH paused AS MATERIALIZED (
  SELECT {paused_names}
  FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL
), piece AS MATERIALIZED (
  SELECT o.job_id, o.tenant, o.last_error FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = CAST(:queue AS text) AND o.order_key = CAST(:aside_at AS timestamptz) AND o.job_id > CAST(:after AS uuid)
  ORDER BY o.queue, o.order_key, o.job_id LIMIT CAST(:window AS integer)
), free AS MATERIALIZED (
  SELECT o.job_id FROM piece AS o WHERE o.last_error = 'paused' AND {unpaused}
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT f.job_id FROM free AS f)) AND coalesce(o.phase = 'owed', false) AND o.order_key = CAST(:aside_at AS timestamptz)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
), moved AS (
  UPDATE {schema}.outbox AS o
  SET (order_key, due_at) = (
      SELECT coalesce(min(j.run_at - j.priority * interval '1 minute'), n.now), greatest(min(j.run_at), n.now)
      FROM {schema}.jobs AS j WHERE j.id = o.job_id),
    last_error = NULL
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
  RETURNING o.job_id
)
SELECT (SELECT count(*) FROM piece) AS looked, (SELECT s.job_id FROM piece AS s ORDER BY s.job_id DESC LIMIT 1) AS last_id,
  (SELECT count(*) FROM moved) AS moved, (SELECT count(*) FROM free) - (SELECT count(*) FROM held) AS skipped
