-- Purpose: find kinds and versions that wait for long and that no consumer seen lately can run. Of a large backlog a part is looked at.
--   What is paused is meant to wait.
-- Transition: none
-- Parameters: grace_s, live_s (how long ago a consumer's last sign may be), batch
-- Locks: none. Index: none for the outbox, primary key of jobs for each of the rows looked at. The processes are read whole.
WITH waits AS MATERIALIZED (
  SELECT o.job_id, o.queue FROM {schema}.outbox AS o, (SELECT {schema}.clock() - make_interval(secs => CAST(:grace_s AS float8)) AS ago) AS n
  WHERE ((o.phase = 'owed' AND (o.due_at <= n.ago OR o.last_error = 'no handler here for its kind and version'))
      OR (o.phase = 'released' AND o.released_at <= n.ago))
    AND NOT EXISTS (
      {pause_of_row})
  LIMIT 20000
), able AS MATERIALIZED (
  SELECT DISTINCT q.queue, a.kind, a.version
  FROM {schema}.processes AS s, unnest(s.works_for) AS q(queue), unnest(s.kinds, s.versions) AS a(kind, version)
  WHERE s.role = 'consumer' AND s.seen_at > (SELECT {schema}.clock()) - make_interval(secs => CAST(:live_s AS float8))
)
SELECT j.kind || ' ' || j.version AS subject, count(*) || ' jobs wait in queue ' || w.queue || ' for a consumer that runs it' AS detail
FROM waits AS w JOIN {schema}.jobs AS j ON j.id = w.job_id
WHERE NOT EXISTS (SELECT 1 FROM able AS a WHERE a.queue = w.queue AND a.kind = j.kind AND a.version = j.version)
GROUP BY j.kind, j.version, w.queue ORDER BY count(*) DESC LIMIT CAST(:batch AS integer)
