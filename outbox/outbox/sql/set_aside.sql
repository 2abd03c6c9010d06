-- Purpose: take what is due of paused tenants and kinds out of the front of a queue's line, where every look for due hints would step over it.
--   Paused queues need none of this: nobody looks into them.
-- Transition: none
-- Parameters: queue, window (rows looked at from the front), aside_at (the place out of the line)
-- Locks: the pauses, SHARE and SKIP LOCKED: a pause can't be resumed between this look and this write, or nobody would put the rows back; one
--   that is just being resumed counts no more. Then outbox rows in id order, SKIP LOCKED. Index: outbox_owed and outbox_owed_low from the front;
--   primary key of jobs for each row where a kind is paused.
WITH held_pauses AS MATERIALIZED (
  SELECT p.scope, p.name FROM {schema}.pauses AS p
  WHERE p.resumed_at IS NULL AND p.scope IN ('tenant', 'kind') ORDER BY p.scope, p.name FOR SHARE SKIP LOCKED
), paused AS MATERIALIZED (
  SELECT {paused_names}
  FROM held_pauses AS p
), now AS MATERIALIZED (
  SELECT {schema}.clock() AS instant
), usual AS MATERIALIZED (
  SELECT o.job_id, o.tenant FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = CAST(:queue AS text) AND o.order_key <= (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n)
  ORDER BY o.order_key, o.job_id LIMIT CAST(:window AS integer)
), low AS MATERIALIZED (
  SELECT o.job_id, o.tenant FROM {schema}.outbox AS o
  WHERE o.phase = 'owed' AND o.queue = CAST(:queue AS text) AND o.order_key > o.due_at AND o.order_key > (SELECT n.instant FROM now AS n)
    AND o.due_at <= (SELECT n.instant FROM now AS n)
  ORDER BY o.order_key LIMIT CAST(:window AS integer)
), meant AS MATERIALIZED (
  SELECT o.job_id FROM (SELECT u.job_id, u.tenant FROM usual AS u UNION ALL SELECT l.job_id, l.tenant FROM low AS l) AS o
  WHERE NOT ({unpaused})
), held AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM meant AS m)) AND coalesce(o.phase = 'owed', false)
    AND o.due_at <= (SELECT n.instant FROM now AS n)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.outbox AS o SET order_key = CAST(:aside_at AS timestamptz), due_at = CAST(:aside_at AS timestamptz), last_error = 'paused'
WHERE o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
RETURNING o.job_id
