-- Purpose: offer at once, to a consumer that has just come and can run them, jobs of a queue that were given back since nobody could, and that would
--   be offered later. Their releases are counted anew, so that what another consumer takes and gives back again does not wait for long. A page of the
--   queue's line each time. Tells where the page ends, and how many it had and offered.
-- Transition: none (the phase stays owed; what was put off becomes due)
-- Parameters: queue, kinds, versions (what the caller can run), key_ids (what he can open), since and since_id (the place that the page begins after), page
-- Locks: outbox rows in id order, SKIP LOCKED; the job rows are only read. Index: outbox_owed, for a page; primary keys.
WITH able AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:versions AS integer[])) AS a(kind, version)
), page AS MATERIALIZED (
  SELECT o.job_id, o.order_key, o.due_at, o.due_at > n.now AND o.last_error IN ('no handler here for its kind and version', 'unknown key')
      AND (o.needs_key IS NULL OR o.needs_key = ANY (CAST(:key_ids AS text[]))) AS put_off
  FROM {schema}.outbox AS o, (SELECT {schema}.clock() AS now) AS n
  WHERE o.phase = 'owed' AND o.queue = CAST(:queue AS text) AND (o.order_key, o.job_id) > (CAST(:since AS timestamptz), CAST(:since_id AS uuid))
    -- What is given back stands no later in line than it came, or than now; and with the lowest priority that is a hundred minutes later.
    AND o.order_key <= n.now + interval '100 minutes'
  ORDER BY o.order_key, o.job_id LIMIT CAST(:page AS integer)
), fitting AS MATERIALIZED (
  SELECT j.id, j.run_at FROM {schema}.jobs AS j
  WHERE j.id = ANY (ARRAY(SELECT p.job_id FROM page AS p WHERE p.put_off)) AND EXISTS (
    SELECT 1 FROM able AS a WHERE a.kind = j.kind AND a.version = j.version)
), held AS MATERIALIZED (
  -- Asked again of what has moved meanwhile: what was claimed and is put off anew has another time.
  SELECT o.job_id FROM {schema}.outbox AS o JOIN page AS p ON p.job_id = o.job_id AND p.due_at = o.due_at
  WHERE o.job_id = ANY (ARRAY(SELECT f.id FROM fitting AS f)) AND coalesce(o.phase = 'owed', false)
  ORDER BY o.job_id FOR UPDATE OF o SKIP LOCKED
), offered AS (
  UPDATE {schema}.outbox AS o SET due_at = greatest(f.run_at, c.now), release_count = 0
  FROM fitting AS f, (SELECT {schema}.clock() AS now) AS c
  WHERE o.job_id = f.id AND o.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h))
  RETURNING o.job_id
)
SELECT (SELECT count(*) FROM page) AS looked_at, (SELECT count(*) FROM offered) AS offered, l.order_key, l.job_id
FROM page AS l ORDER BY l.order_key DESC, l.job_id DESC LIMIT 1
