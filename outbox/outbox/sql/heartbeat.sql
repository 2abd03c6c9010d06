-- Purpose: extend the leases that their tokens still own, and say for each, in the order given, whether it is still owned. One process may
--   hold two leases of one job, a lost one and the current: token and job together tell them apart. What a handler says of its progress
--   travels along: a statement of its own would cost one.
--   In a governed queue, and with a concurrency key, a lease that has expired is not extended any more.
-- Transition: none
-- Parameters: job_ids, tokens, leases_s, markers (each the latest of its attempt, or NULL: as before)
-- Locks: outbox rows in id order, NO KEY UPDATE, SKIP LOCKED: a row that its own completion holds needs no beat, and one under
--   job.transaction() (KEY SHARE) can still be extended. Index: primary key, and queue_limits_pkey for a lease that has expired; no indexed column changes, so it stays heap-only.
WITH named AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:leases_s AS float8[]), CAST(:markers AS text[]))
    WITH ORDINALITY AS b(job_id, token, lease_s, marker, place)
), mine AS MATERIALIZED (
  SELECT o.job_id, b.lease_s, b.marker FROM {schema}.outbox AS o JOIN named AS b ON b.job_id = o.job_id AND b.token = o.lease_token
  WHERE o.job_id = ANY (CAST(:job_ids AS uuid[])) AND coalesce(o.phase = 'leased', false)
  ORDER BY o.job_id FOR NO KEY UPDATE OF o SKIP LOCKED
), given AS MATERIALIZED (
  SELECT array_agg(m.job_id) AS ids, array_agg(m.lease_s) AS leases_s, array_agg(m.marker) AS markers FROM mine AS m
), beaten AS (
  UPDATE {schema}.outbox AS o
  SET lease_expires_at = (SELECT {schema}.clock() + make_interval(secs => g.leases_s[array_position(g.ids, o.job_id)]) FROM given AS g),
    progress = coalesce((SELECT g.markers[array_position(g.ids, o.job_id)] FROM given AS g), o.progress)
  WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM mine AS m))
    -- Asked only now that the row is held: the slot of one that has expired may have been given to another one until then.
    AND CASE WHEN o.lease_expires_at > {schema}.clock() THEN true
      ELSE o.limit_key IS NULL AND NOT coalesce((SELECT q.governed FROM {schema}.queue_limits AS q WHERE q.name = o.queue), false) END
  RETURNING o.job_id, o.lease_token
)
SELECT b.job_id, t.job_id IS NOT NULL AS extended,
  -- Not EXISTS, which the planner may answer for all rows at once, by reading the whole table.
  coalesce((SELECT true FROM {schema}.outbox AS o WHERE o.job_id = b.job_id AND o.lease_token = b.token ORDER BY o.job_id LIMIT 1), false)
    AS owned
FROM named AS b LEFT JOIN beaten AS t ON t.job_id = b.job_id AND t.lease_token = b.token
ORDER BY b.place
