-- Purpose: go on through the jobs in the order of their ids and give those their letters that had failed before there were letters.
-- Transition: none
-- Parameters: batch (how many jobs to look at)
-- Locks: the backlog's row, SKIP LOCKED: one relay at a time; then the failed jobs, SHARE, so that none is redriven meanwhile. No row comes
--   back where somebody else is at it or nothing is left. Index: primary keys.
WITH at AS MATERIALIZED (
  SELECT b.place FROM {schema}.dead_letter_backlog AS b FOR UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
  SELECT j.id FROM {schema}.jobs AS j
  WHERE j.id > (SELECT a.place FROM at AS a) ORDER BY j.id LIMIT CAST(:batch AS integer)
), failed AS MATERIALIZED (
  SELECT j.id, j.kind, j.queue, j.tenant, coalesce(j.last_error_code, 'unknown') AS code, j.finished_at
  FROM {schema}.jobs AS j WHERE j.id = ANY (ARRAY(SELECT s.id FROM seen AS s)) AND j.state = 'failed'
  ORDER BY j.id FOR SHARE
), filled AS (
  INSERT INTO {schema}.dead_letters (job_id, kind, queue, tenant, code, failed_at)
  SELECT f.id, f.kind, f.queue, f.tenant, f.code, f.finished_at FROM failed AS f
  ON CONFLICT (job_id) DO NOTHING
  RETURNING job_id
), moved AS (
  UPDATE {schema}.dead_letter_backlog AS b SET place = (SELECT s.id FROM seen AS s ORDER BY s.id DESC LIMIT 1)
  WHERE EXISTS (SELECT FROM seen AS s) AND EXISTS (SELECT FROM at AS a)
  RETURNING b.place
), over AS (
  DELETE FROM {schema}.dead_letter_backlog AS b
  WHERE EXISTS (SELECT FROM at AS a) AND NOT EXISTS (SELECT FROM seen AS s)
  RETURNING b.place
)
SELECT (SELECT count(*) FROM seen AS s) AS seen, (SELECT count(*) FROM filled AS f) AS filled FROM at AS a
