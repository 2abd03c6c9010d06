-- Purpose: delete the ended jobs of one stretch of the table whose time is over, with all that belongs to them. What has not ended is never touched.
-- Transition: none (rows leave)
-- Parameters: place (the id that the stretch begins after), newest_s (what was submitted within so many seconds is not looked at), batch;
--   kinds, states, keeps_s (the rules: '*' is every kind without a rule of its own; NULL seconds: for ever)
-- Locks: job rows in id order, SKIP LOCKED: an ended job has no outbox row. One that has been redriven meanwhile doesn't fit any more.
-- Index: primary keys (ids grow with the time of submission, so no index on finished_at is needed), refusals_job, redrive_items_job, join_members_job.
WITH rules AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:states AS text[]), CAST(:keeps_s AS float8[])) AS r(kind, state, keep_s)
), stretch AS MATERIALIZED (
  SELECT j.id, j.kind, j.state, j.attempt_count, j.finished_at FROM {schema}.jobs AS j
  WHERE j.id > CAST(:place AS uuid) AND j.id < (
    -- The least id of that moment: its milliseconds are the upper 48 bits.
    SELECT CAST(lpad(to_hex(floor(extract(epoch FROM {schema}.clock() - make_interval(secs => CAST(:newest_s AS float8))) * 1000)::bigint), 12, '0')
      || '00000000000000000000' AS uuid))
  ORDER BY j.id LIMIT CAST(:batch AS integer)
), due AS MATERIALIZED (
  SELECT s.id, s.finished_at FROM stretch AS s CROSS JOIN LATERAL (
    SELECT r.keep_s FROM rules AS r WHERE r.state = s.state AND r.kind IN (s.kind, '*') ORDER BY r.kind = '*' LIMIT 1) AS k
  WHERE s.finished_at <= (SELECT {schema}.clock()) - make_interval(secs => k.keep_s)
    AND {may_leave}
), held AS MATERIALIZED (
  SELECT j.id FROM {schema}.jobs AS j
  WHERE j.id = ANY (ARRAY(SELECT d.id FROM due AS d)) AND j.state IN ('succeeded', 'failed', 'cancelled')
    AND EXISTS (SELECT 1 FROM due AS d WHERE d.id = j.id AND d.finished_at = j.finished_at)
  ORDER BY j.id FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM {schema}.jobs AS j WHERE j.id = ANY (ARRAY(SELECT h.id FROM held AS h)) RETURNING j.state
), attempts AS (
  DELETE FROM {schema}.attempts AS a WHERE a.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), refusals AS (
  DELETE FROM {schema}.refusals AS r WHERE r.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), effects AS (
  DELETE FROM {schema}.effects AS e WHERE e.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), checkpoints AS (
  DELETE FROM {schema}.checkpoints AS c WHERE c.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), joins AS (
  DELETE FROM {schema}.joins AS o WHERE o.job_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), members AS (
  DELETE FROM {schema}.join_members AS m WHERE m.join_id = ANY (ARRAY(SELECT h.id FROM held AS h))
), items AS (
  DELETE FROM {schema}.redrive_items AS i
  WHERE i.job_id = ANY (ARRAY(SELECT h.id FROM held AS h)) AND (i.state NOT IN ('waiting', 'redriven')
    OR (SELECT true FROM {schema}.redrive_operations AS r WHERE r.id = i.operation_id AND r.ended_at IS NULL) IS NULL)
), open_items AS (
  -- A redrive that is under way still counts these; it will find the job gone.
  UPDATE {schema}.redrive_items AS i SET new_payload = NULL, old_payload = NULL
  WHERE i.job_id = ANY (ARRAY(SELECT h.id FROM held AS h)) AND i.state IN ('waiting', 'redriven')
    AND (SELECT true FROM {schema}.redrive_operations AS r WHERE r.id = i.operation_id AND r.ended_at IS NULL)
)
SELECT (SELECT count(*) FROM stretch) AS looked_at, (SELECT s.id FROM stretch AS s ORDER BY s.id DESC LIMIT 1) AS last_id,
  count(*) FILTER (WHERE g.state = 'succeeded') AS succeeded, count(*) FILTER (WHERE g.state = 'failed') AS failed,
  count(*) FILTER (WHERE g.state = 'cancelled') AS cancelled
FROM gone AS g
