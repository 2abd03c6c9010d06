-- Purpose: tell that this process lives, what it works for and what it can run; and forget the processes that have said nothing for long, or nothing since
--   the clock was set back: one that lives tells again within seconds, and one that doesn't would seem to until the clock comes there.
-- Transition: none
-- Parameters: name, role, host, pid, version, queues, kinds and versions (what it can run), ended_per_s (JSON: jobs a second
--   that it ended lately, by queue), key_ids (that it has, or NULL), runways (JSON: how long a relay's are, by queue), uptime_s, forget_s
-- Locks: its own row; those of the forgotten, SKIP LOCKED. Index: primary key; a renewal changes no indexed column, so it stays heap-only. The
--   table holds a row per process and is read whole.
WITH gone AS (
  DELETE FROM {schema}.processes AS p WHERE p.name = ANY (ARRAY(
    SELECT s.name FROM {schema}.processes AS s
    WHERE s.seen_at NOT BETWEEN (SELECT {schema}.clock()) - make_interval(secs => CAST(:forget_s AS float8)) AND (SELECT {schema}.clock()) + interval '1 s'
      AND s.name <> CAST(:name AS text)
    ORDER BY s.name FOR UPDATE SKIP LOCKED))
  RETURNING p.name
)
INSERT INTO {schema}.processes AS p (name, role, host, pid, version, works_for, kinds, versions, ended_per_s, key_ids, runways, started_at, seen_at)
SELECT CAST(:name AS text), CAST(:role AS text), CAST(:host AS text), CAST(:pid AS integer), CAST(:version AS text), CAST(:queues AS text[]),
  CAST(:kinds AS text[]), CAST(:versions AS integer[]), CAST(:ended_per_s AS jsonb), CAST(:key_ids AS text[]), CAST(:runways AS jsonb), n.now - make_interval(secs => CAST(:uptime_s AS float8)), n.now
FROM (SELECT {schema}.clock() AS now) AS n
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, ended_per_s = excluded.ended_per_s, key_ids = excluded.key_ids, runways = excluded.runways
