-- Purpose: end attempts in success, if their tokens still own them and no effect of theirs is pending or uncertain, where no `apply` follows.
-- Transition: complete: running -> succeeded (outbox row deleted)
-- Parameters: job_ids, tokens; started_s, effects (as in retry.sql); may_owe: whether an effect may be on record (NULL: it may). Only then is one looked for.
-- Locks: outbox rows in id order, waiting; then their job rows. Only a holder's own statements and single-row ones wait here, so no cycle can form.
-- Index: both primary keys; arrays from sub-selects keep the planner to nested loops, and coalesce keeps it from outbox_leases, where it
--   would walk the leases of all, and from effects_open, where it would walk the open effects of all. A sub-select that isn't EXISTS is never hashed.
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:job_ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:started_s AS float8[]), CAST(:effects AS text[]),
    CAST(:may_owe AS boolean[])) AS e(job_id, token, started_s, touched, may_owe)
), mine AS MATERIALIZED (
  SELECT o.job_id FROM {schema}.outbox AS o
  JOIN ended AS e ON e.job_id = o.job_id AND e.token = o.lease_token
  WHERE o.job_id = ANY (ARRAY(SELECT d.job_id FROM ended AS d)) AND coalesce(o.phase = 'leased', false)
    AND (NOT coalesce(e.may_owe, true) OR (SELECT true FROM {schema}.effects AS x
      WHERE x.job_id = o.job_id AND coalesce(x.state IN ('pending', 'uncertain'), false) LIMIT 1) IS NULL)
  ORDER BY o.job_id FOR UPDATE OF o
), fenced AS (
  DELETE FROM {schema}.outbox AS o WHERE o.job_id = ANY (ARRAY(SELECT m.job_id FROM mine AS m))
  RETURNING o.job_id, o.lease_token, o.released_at
), finished AS (
  UPDATE {schema}.jobs AS j SET state = 'succeeded', lease_token = NULL, finished_at = n.now
  FROM fenced AS f, (SELECT {schema}.clock() AS now) AS n
  WHERE j.id = f.job_id AND j.state = 'running' AND j.lease_token = f.lease_token
  RETURNING j.id, j.attempt_count, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.lease_started_at,
    j.finished_at, f.lease_token AS token, f.released_at
)
INSERT INTO {schema}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, hinted_at, claimed_at,
  started_at, ended_at, outcome, effects_touched)
SELECT j.id, j.attempt_count, j.token, j.lease_owner, j.lease_host, j.lease_worker_version, j.lease_handler_version, j.released_at,
  j.lease_started_at, CASE WHEN e.started_s IS NOT NULL THEN least(j.lease_started_at + make_interval(secs => e.started_s), j.finished_at) END, j.finished_at, 'succeeded',
  string_to_array(e.touched, E'\x1f')
FROM finished AS j JOIN ended AS e ON e.job_id = j.id AND e.token = j.token
RETURNING job_id
