-- Purpose: erase the payloads, and the checkpoints, of the ended jobs of one stretch of the table whose time for that is over. Rows and history stay.
-- Transition: none
-- Parameters: place (the id that the stretch begins after), last_id (its end); kinds, states, keeps_s (the rules, as in purge.sql)
-- Locks: job rows in id order, SKIP LOCKED: an ended job has no outbox row. Index: primary keys, redrive_items_job, join_members_job. The update is heap-only.
WITH rules AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:states AS text[]), CAST(:keeps_s AS float8[])) AS r(kind, state, keep_s)
), held AS MATERIALIZED (
  SELECT s.id FROM {schema}.jobs AS s
  WHERE s.id > CAST(:place AS uuid) AND s.id <= CAST(:last_id AS uuid) AND s.payload_erased_at IS NULL
    AND s.state IN ('succeeded', 'failed', 'cancelled')
    AND s.finished_at <= {schema}.clock() - make_interval(secs => (
      SELECT r.keep_s FROM rules AS r WHERE r.state = s.state AND r.kind IN (s.kind, '*') ORDER BY r.kind = '*' LIMIT 1))
    AND {may_leave}
  ORDER BY s.id FOR UPDATE SKIP LOCKED
), kept_nothing AS (
  DELETE FROM {schema}.checkpoints AS c WHERE c.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), patched AS (  -- what a redrive's patch has replaced, and by what
  UPDATE {schema}.redrive_items AS i SET new_payload = NULL, old_payload = NULL
  WHERE i.job_id = ANY (ARRAY(SELECT h.id FROM held AS h)) AND (i.new_payload IS NOT NULL OR i.old_payload IS NOT NULL)
), erased AS (
  UPDATE {schema}.jobs AS j SET payload = 'null', payload_erased_at = n.now
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = ANY (ARRAY(SELECT h.id FROM held AS h))
  RETURNING j.id
)
SELECT count(*) AS erased FROM erased
